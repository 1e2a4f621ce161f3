"""Where data come from, by name."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..core.errors import UserError, not_allowed
from ..core.files import path_of
from .dataset import Decoded, Request
from .images.kind import images_decoded
from .readers.class_folders import class_folders_decoded, has_class_folders, site_folders
from .readers.hub import content_of, is_saved, load_saved, load_splits, splits_decoded
from .readers.numpy_files import numpy_files_decoded
from .readers.quadratic import QUADRATIC, quadratic_decoded
from .readers.synthetic import SYNTHETIC, synthetic_decoded
from .readers.tables import table_files, tables_decoded
from .readers.text import TEXT, text_decoded

ARRAYS = "arrays:"
"""What the name of arrays that a caller gave begins with; the rest tells their content."""
OF_CLIENTS = "clients:"
"""How the rest begins where the arrays say whose each example is."""
HUB_NAME = re.compile(r"(?!.*\.(?!v\d)[A-Za-z]\w{1,6}$)[\w-][\w.-]*(/[\w-][\w.-]*)?", re.ASCII)
"""A name of a hub: without a leading dot, or what looks like the suffix of a file."""
COLUMNS = ("image_column", "label_column", "group_column")
"""The fields of a request that name columns."""


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
    for beginning, opened in BEGINNINGS.items():
        if request.name.startswith(beginning):
            return opened(request)
    folder = path_of(request.name)
    if not folder.exists():
        if not _may_be_on_a_hub(request.name):
            raise _missing(request.name)
        splits = load_splits(request.name, request.name)
        return Source(f"{request.name} {content_of(splits)}", lambda: splits_decoded(request, splits))
    if tables := table_files(folder):
        stats = [path.stat() for path in tables.values()]
        stamp = [(stat.st_size, stat.st_mtime_ns) for stat in stats]
        return Source(f"table {folder.resolve()} {stamp}", lambda: tables_decoded(request, tables))
    return _folder(request, folder)


def _may_be_on_a_hub(name: str) -> bool:
    """Whether it is ``NAME`` or ``OWNER/NAME``, where no folder here is called OWNER."""
    owner, separator, _ = name.partition("/")
    return bool(HUB_NAME.fullmatch(name)) and not (separator and Path(owner).is_dir())


def _missing(name: str) -> UserError:
    as_text = f" (a text is '{TEXT}{name}')" if name.endswith(".txt") else ""
    return UserError(f"dataset: there is no file or folder {name!r}{as_text}")


def _folder(request: Request, folder: Path) -> Source:
    """A folder is told by its files' names, sizes and times, without opening them."""
    try:
        files = sorted(p for p in folder.rglob("*") if p.is_file())
        stamps = [(str(p.relative_to(folder)), p.stat().st_size, p.stat().st_mtime_ns) for p in files]
    except OSError as error:
        raise UserError(f"dataset: cannot read the folder {request.name!r} ({error})") from error
    if folder.is_file() and folder.suffix == ".txt":
        raise not_allowed("dataset", request.name, f"'{TEXT}{request.name}' for a text")
    if not folder.is_dir() or not files:
        raise not_allowed("dataset", request.name, "'digits', a table, a folder with data, or a hub name")
    name, path = request.name, str(folder.resolve())
    fingerprint = f"{path} {stamps}"
    if (folder / "train-images.npy").exists():
        _refuse(request, f"{name!r} holds NumPy files", "image_size", *COLUMNS)
        return Source(fingerprint, lambda: numpy_files_decoded(request, folder))
    if is_saved(folder):
        return Source(fingerprint, lambda: splits_decoded(request, load_saved(name, folder)))
    if has_class_folders(folder):
        _refuse(request, f"{name!r} holds folders of classes", "image_column", "label_column")
        fingerprint += " of sites" if site_folders(folder) else ""
        return Source(fingerprint, lambda: class_folders_decoded(request, folder))
    return Source(fingerprint, lambda: splits_decoded(request, load_splits(name, path)))


def _refuse(request: Request, reason: str, *fields: str) -> None:
    """Refuse keys that say nothing here; those of columns may be for another site."""
    for field in fields:
        value, default = getattr(request, field), getattr(Request, field)
        if value == default or (request.of_site and field in COLUMNS):
            continue
        if field == "group_column":
            raise not_allowed("partition", f"natural:{value}", f"another one: {reason}")
        raise not_allowed(field.replace("_", "-"), value, f"{default!r}: {reason}")


def _forgotten(request: Request) -> Source:
    """Arrays that a caller gave: they are found decoded, or not at all."""
    _refuse(request, "data holds arrays", "image_size", "image_column", "label_column")
    if request.group_column != "client" or not request.name.startswith(f"{ARRAYS}{OF_CLIENTS}"):
        _refuse(request, "data holds arrays", "group_column")

    def decode() -> Decoded:
        raise UserError(f"dataset: {request.name!r} is no longer in the cache; give the arrays again")

    return Source(request.name, decode)


def _digits(request: Request) -> Source:
    """scikit-learn's 1,797 8x8 digits, of which a fixed, stratified fifth is the test set."""
    _refuse(request, "the digits have no columns", *COLUMNS)

    def decode() -> Decoded:
        from PIL import Image
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        digits = load_digits()
        scans = np.rint(digits.images * (255 / 16)).astype(np.uint8)
        if size := request.image_size:
            scans = np.stack([np.asarray(Image.fromarray(scan).resize((size, size))) for scan in scans])
        train, test, train_labels, test_labels = train_test_split(
            scans[:, None], digits.target, test_size=0.2, random_state=0, stratify=digits.target
        )
        return images_decoded((train, train_labels.astype(np.int64)), (test, test_labels.astype(np.int64)))

    return Source("digits", decode)


def _made(request: Request) -> Source:
    beginning = next(name for name in MADE if request.name.startswith(name))
    return Source(beginning, lambda: MADE[beginning](request))


def _text(request: Request) -> Source:
    path = path_of(request.name.removeprefix(TEXT))
    try:
        stamp = path.stat()
    except OSError as error:
        raise UserError(f"dataset: cannot read {request.name!r} ({error})") from error
    fingerprint = f"{path.resolve()} {stamp.st_size} {stamp.st_mtime_ns}"
    return Source(fingerprint, lambda: text_decoded(request, path))


MADE = {SYNTHETIC: synthetic_decoded, QUADRATIC: quadratic_decoded}
"""What makes data, by what their names begin with: they depend on the number of clients and the seed."""

BEGINNINGS: dict[str, Callable[[Request], Source]] = {
    ARRAYS: _forgotten,
    TEXT: _text,
    **dict.fromkeys(MADE, _made),
}
"""What opens the data whose names begin so."""
