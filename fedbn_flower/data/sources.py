"""Where data come from, by name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, not_allowed, unknown_name
from .dataset import Decoded, Request
from .images import Part, images_decoded, stacked_images
from .tables import SUFFIXES, table_files, tables_decoded

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

LABEL_NAMES = ("label", "labels", "fine_label", "target", "class", "y")
ARRAYS = "arrays:"
"""What the name of arrays that a caller gave begins with; the rest tells their content."""
OF_CLIENTS = "clients:"
"""How the rest begins where the arrays say whose each example is."""
TEST_NAMES = ("test", "validation", "valid", "val")


@dataclass(frozen=True)
class Source:
    """A dataset not yet decoded: what identifies its content, and how to decode it."""

    fingerprint: str
    decode: Callable[[], Decoded]


def open_source(request: Request) -> Source:
    """The source of that name.

    Raises
    ------
    UserError
        When a folder does not exist or cannot be read.
    """
    if request.name == "digits":
        return _digits(request)
    if request.name.startswith(ARRAYS):
        return _forgotten(request)
    folder = Path(request.name).expanduser()
    looks_like_path = request.name.startswith((".", "/", "~")) or folder.suffix in SUFFIXES or folder.exists()
    if not looks_like_path:
        return _hugging_face(request, request.name)
    if tables := table_files(folder):
        stats = [path.stat() for path in tables.values()]
        stamp = [(stat.st_size, stat.st_mtime_ns) for stat in stats]
        return Source(f"{folder.resolve()} {stamp}", lambda: tables_decoded(request, tables))
    try:
        files = sorted(p for p in folder.rglob("*") if p.is_file())
        stamps = [(str(p.relative_to(folder)), p.stat().st_size, p.stat().st_mtime_ns) for p in files]
    except OSError as error:
        raise UserError(f"dataset: cannot read the folder {request.name!r} ({error})") from error
    if not folder.is_dir() or not files:
        raise not_allowed("dataset", request.name, "'digits', a table, a folder with data, or a hub name")
    if (folder / "train-images.npy").exists():
        return _arrays(request, folder, repr(stamps))
    return _hugging_face(request, str(folder.resolve()), repr(stamps))


def _arrays(request: Request, folder: Path, stamps: str) -> Source:
    """NumPy files ``{train,test}-{images,labels}.npy``: uint8 images (N, height, width) or (N, channels,
    height, width), and class numbers (N,)."""
    for key, value in (("image-size", request.image_size), ("partition", request.group_column)):
        if value:
            raise not_allowed(key, value, f"another one: {request.name!r} holds NumPy files")

    def read(split: str) -> Part:
        try:
            images, labels = (
                np.load(folder / f"{split}-{kind}.npy", mmap_mode="r") for kind in ("images", "labels")
            )
        except (OSError, ValueError) as error:
            raise UserError(f"dataset: {request.name!r} cannot be read ({error})") from error
        if images.ndim == 3:
            images = images[:, None]
        if images.dtype != np.uint8 or images.ndim != 4:
            raise UserError(f"dataset: {split}-images.npy holds {images.dtype} {images.shape}, not images")
        if labels.shape != images.shape[:1] or labels.dtype.kind not in "iu" or labels.min(initial=0) < 0:
            raise UserError(f"dataset: {split}-labels.npy does not hold a class number for each image")
        return images, labels.astype(np.int64)

    return Source(f"{folder.resolve()} {stamps}", lambda: images_decoded(read("train"), read("test")))


def _forgotten(request: Request) -> Source:
    """Arrays that a caller gave: they are found decoded, or not at all."""
    if request.image_size:
        raise not_allowed("image-size", request.image_size, "0: data holds arrays")
    columns = ("", "client") if request.name.startswith(f"{ARRAYS}{OF_CLIENTS}") else ("",)
    if request.group_column not in columns:
        told = " or natural:client" if len(columns) > 1 else ""
        raise not_allowed(
            "partition", f"natural:{request.group_column}", f"another one{told}: data holds arrays"
        )

    def decode() -> Decoded:
        raise UserError(f"dataset: {request.name!r} is no longer in the cache; give the arrays again")

    return Source(request.name, decode)


def _digits(request: Request) -> Source:
    """scikit-learn's 1,797 8x8 digits, of which a fixed, stratified fifth is the test set."""
    if request.group_column:
        raise not_allowed(
            "partition", f"natural:{request.group_column}", "another: the digits have no columns"
        )

    def decode() -> Decoded:
        from PIL import Image
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        digits = load_digits()
        scans = [Image.fromarray(d.astype(np.uint8)) for d in np.rint(digits.images * (255 / 16))]
        train, test, train_labels, test_labels = train_test_split(
            scans, digits.target, test_size=0.2, random_state=0, stratify=digits.target
        )
        return images_decoded(
            (stacked_images(train, request.image_size), train_labels.astype(np.int64)),
            (stacked_images(test, request.image_size), test_labels.astype(np.int64)),
        )

    return Source("digits", decode)


def _hugging_face(request: Request, path: str, stamps: str | None = None) -> Source:
    """A dataset that `datasets` can load; a local folder is told by its files, without loading it."""
    loaded: dict[str, DatasetDict] = {}

    def dataset() -> "DatasetDict":
        if not loaded:
            loaded[path] = _load(request.name, path)
        return loaded[path]

    def decode() -> Decoded:
        splits = []
        for wanted, names in (("train", ("train",)), ("test", TEST_NAMES)):
            found = next((name for name in names if name in dataset()), None)
            if found is None:
                has = sorted(dataset())
                raise UserError(f"dataset: {request.name!r} has no {wanted} split; it has {has}")
            splits.append(dataset()[found])
        image_column, label_column = _columns(request, splits[0])
        train, test = (_decode(request, split, image_column, label_column) for split in splits)
        feature = splits[0].features[label_column]
        groups = None
        if request.group_column:
            groups = _ids(request, splits[0]), _ids(request, splits[1])
        return images_decoded(
            train, test, getattr(feature, "num_classes", 0), groups, getattr(feature, "names", ())
        )

    fingerprint = stamps or "".join(split._fingerprint for split in dataset().values())
    return Source(f"{path} {fingerprint}", decode)


def _load(name: str, path: str) -> "DatasetDict":
    from datasets.utils.logging import disable_progress_bar
    from flwr_datasets import FederatedDataset

    disable_progress_bar()
    federated = FederatedDataset(dataset=path, partitioners={}, shuffle=False)
    try:
        federated.load_split("train")
    except Exception as error:  # the loaders of `datasets` raise anything, even for a missing name
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(f"dataset: cannot load {name!r}: {reason[0]}") from error
    assert federated._dataset is not None
    return federated._dataset


def _columns(request: Request, split: "Dataset") -> tuple[str, str]:
    from datasets import ClassLabel, Image

    features = split.features
    images = [name for name, feature in features.items() if isinstance(feature, Image)]
    classes = [name for name, feature in features.items() if isinstance(feature, ClassLabel)]
    labels = [*classes, *(name for name in LABEL_NAMES if name in features)]
    chosen = []
    for key, wanted, candidates in (
        ("image-column", request.image_column, images),
        ("label-column", request.label_column, labels),
    ):
        if wanted != "auto":
            if wanted not in features:
                raise unknown_name(key, wanted, features)
            chosen.append(wanted)
        elif candidates:
            chosen.append(candidates[0])
        else:
            kind = key.removesuffix("-column")
            raise UserError(
                f"{key}: no {kind} column found in {request.name!r}; name one of {sorted(features)}"
            )
    return chosen[0], chosen[1]


def _decode(request: Request, split: "Dataset", image_column: str, label_column: str) -> Part:
    try:
        labels = np.asarray(split[label_column][:], dtype=np.int64)
    except (TypeError, ValueError) as error:
        raise UserError(f"label-column: {label_column!r} holds no class numbers ({error})") from error
    if len(labels) and labels.min() < 0:
        raise UserError(f"label-column: {label_column!r} holds the negative class {labels.min()}")
    try:
        return stacked_images(split[image_column], request.image_size), labels
    except (OSError, AttributeError) as error:
        raise UserError(f"image-column: {image_column!r} cannot be decoded ({error})") from error


def _ids(request: Request, split: "Dataset") -> NDArray[np.str_]:
    """The natural clients' ids."""
    if request.group_column not in split.features:
        raise unknown_name("partition", request.group_column, split.features)
    return np.asarray(split[request.group_column][:]).astype(np.str_)
