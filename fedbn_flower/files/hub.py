"""Read datasets with the `datasets` library: from the hub, from a local folder, or saved to disk."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import UserError, not_allowed, refuse, unknown_name
from ..core.files import path_of
from ..core.free_memory import COPIES, check_fits
from ..core.notes import Note
from ..core.text import number_of
from ..data.column_text import Feature
from ..data.dataset import OF_TEXTS, Decoded, Request
from ..data.float32 import as_float32
from ..data.labels import Classes, gaps
from ..data.masks import numbered
from ..data.splits import origins
from .decoding import ImageDecoder, ImageFile
from .held_out import find_test_split, of_split_columns
from .labels import as_class_numbers, number_names
from .mask_files import MaskDecoder
from .pictures import by_split, decoded_rows, of_paths
from .tables.header import CELL
from .tables.labels import Targets, encode_targets, find_labels, refuse_alike
from .tables.large import check_parquet
from .tables.table_file import PARQUET
from .walk import walk

if TYPE_CHECKING:
    from datasets import Dataset

LABEL_NAMES = ("label", "labels", "fine_label", "target", "class", "y")
MASK_NAMES = ("mask", "masks", "segmentation", "annotation", *LABEL_NAMES)
BY_SPLIT = "for that give folders 'train' and 'test', each with its pictures and its own metadata"
Splits = Mapping[str, "Dataset"]


def load_splits(name: str, path: str) -> Splits:
    """Load a dataset by its hub name, or from a folder.

    Raises
    ------
    UserError
        When it cannot be loaded.
    """
    from datasets import load_dataset

    for file in walk(Path(path)).files if Path(path).is_dir() else ():
        if file.name.lower().endswith(PARQUET):
            check_parquet(file)
    found: Splits = _load(name, lambda: load_dataset(path))
    return {split: with_images(rows) for split, rows in found.items()}


def load_parquet(name: str, path: Path) -> Splits:
    """Load one Parquet file of pictures as the ``train`` split.

    Raises
    ------
    UserError
        When it cannot be loaded.
    """
    from datasets import Dataset

    check_parquet(path)
    return {"train": with_images(_load(name, lambda: Dataset.from_parquet(str(path))))}


def with_images(rows: "Dataset") -> "Dataset":
    """Return rows with columns of encoded pictures as images, where the file does not say so.

    These are columns of bytes, or of structs of ``bytes`` and ``path``, as the hub has them.
    """
    from datasets import Image

    for name, feature in rows.features.items():
        is_struct = isinstance(feature, Mapping) and "bytes" in feature and {*feature} <= {"bytes", "path"}
        if is_struct or getattr(feature, "dtype", "") in ("binary", "large_binary"):
            rows = rows.cast_column(name, Image())
    return rows


def is_saved(folder: Path) -> bool:
    """Return whether ``save_to_disk`` wrote the folder."""
    return (folder / "dataset_dict.json").exists() or (folder / "state.json").exists()


def load_saved(name: str, folder: Path) -> Splits:
    """Load what ``save_to_disk`` wrote: a DatasetDict, or a Dataset, which becomes the ``train`` split.

    Raises
    ------
    UserError
        When it cannot be loaded.
    """
    from datasets import Dataset, load_from_disk

    found = _load(name, lambda: load_from_disk(str(folder)))
    return {"train": found} if isinstance(found, Dataset) else found


def _load(name: str, load: Callable[[], Any]) -> Any:
    from datasets.utils.logging import disable_progress_bar

    disable_progress_bar()
    try:
        return load()
    except Exception as error:  # the loaders of `datasets` raise anything, even for a missing name
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(f"dataset: cannot load {name!r}: {reason[0]}") from error


def _check_fits(name: str, splits: Splits) -> None:
    """Compare the values of the columns that are no pictures with the memory; those stay on the disk.

    Raises
    ------
    UserError
        When they do not fit.
    """
    from datasets import Image

    for split in splits.values():
        columns = [one for one, feature in split.features.items() if not isinstance(feature, Image)]
        size = COPIES * split.data.select(columns).nbytes
        needed = max(size, split.num_rows * len(columns) * CELL)
        check_fits("dataset", f"{split.num_rows} rows of {name!r}", needed)


def version_of(splits: Splits) -> str:
    """Return a text that differs between versions of a downloaded dataset: its files are named by a hash."""
    return repr([(n, s.num_rows, [file["filename"] for file in s.cache_files]) for n, s in splits.items()])


def decode_splits(request: Request, splits: Splits) -> Decoded:
    """Decode the images and labels of ``train`` and of the test split (see `find_test_split`).

    A label column of images holds masks, see `masks.numbered`.

    Raises
    ------
    UserError
        When a split or a column is missing, or has another type; for words that are missing values.
    """
    import pandas as pd

    refuse(request.given(f"{request.name!r} is read without it", "missing_values", *OF_TEXTS))
    _check_fits(request.name, splits)
    if "train" not in splits:
        raise UserError(f"dataset: {request.name!r} has no train split; it has {sorted(splits)}")
    test_name, notes = find_test_split(list(splits))
    used = [splits[name] for name in ("train", test_name) if name]
    image_column, labels, are_masks = _columns(request, used[0])
    for split in used[1:]:
        if missing := {image_column, *(label.name for label in labels)} - set(split.column_names):
            raise UserError(f"dataset: the split {test_name!r} of {request.name!r} lacks {sorted(missing)}")
    decoder, masks, seen = (
        ImageDecoder(*request.sampling),
        MaskDecoder(*request.sampling[:2]),
        list[ImageFile](),
    )
    sizes = list(map(len, used))
    x = decoder.decode(_noted(_files(used, image_column), seen), sum(sizes))
    if request.unit_pattern:
        raise not_allowed(
            request.unit_key, request.unit_pattern, "the name of a column: pictures have no paths"
        )
    groups, clients = (request.unit_key, request.unit_column), ("partition", request.group_column)
    rows = pd.DataFrame(
        {
            "split": np.repeat(["train", "test"][: len(used)], sizes),
            **{name: _values_of(*by, used) for name, by in (("site", clients), ("group", groups)) if by[1]},
            "origin": _origins(request, [name for name in ("train", test_name) if name], sizes, seen),
        }
    )
    if are_masks:
        y = masks.decode(list(_files(used, labels[0].name)), decoder.grids)
        owners = [rows["site"].to_numpy(np.str_)] if request.group_column else None
        (y,), number, label_notes = numbered([y], "dataset", owners)
        classes, label_notes = Classes(number), [*masks.notes(), *label_notes]
    else:
        y, classes, label_notes = _labels(used, labels, request)
    more_notes = [*label_notes, *decoder.notes()]
    if len(used) == 1:
        others = set(_texts(used[0])) - {label.name for label in labels} - {request.group_column}
        more_notes += of_split_columns({name: used[0].unique(name) for name in sorted(others)}, BY_SPLIT)
    return decoded_rows(request, rows, by_split(rows, x, y), classes, notes, more_notes, request.unit_column)


def _texts(split: "Dataset") -> list[str]:
    """Return the columns of texts."""
    types = ("string", "large_string")
    return [name for name, feature in split.features.items() if getattr(feature, "dtype", "") in types]


def _columns(request: Request, split: "Dataset") -> tuple[str, list[Feature], bool]:
    """Return the image column, the label columns, of which the key may name several with commas, and whether
    they are one of masks.
    """
    from datasets import ClassLabel, Image

    features = split.features
    images = [name for name, feature in features.items() if isinstance(feature, Image)]
    classes = [name for name, feature in features.items() if isinstance(feature, ClassLabel)]
    labels = [*classes, *(name for name in LABEL_NAMES if name in features and name not in images)]
    masks = [name for name in images if name.lower() in MASK_NAMES]
    images.sort(key=lambda name: name in masks)
    labels = labels or masks[: len(images) - 1]
    given = request.label_column
    stated = find_labels(given, list(features), request.name) if given != "auto" else []
    chosen = []
    for key, wanted, candidates in (
        ("image-column", request.image_column, images),
        ("label-column", stated[0].name if stated else "auto", labels),
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
    image_column, label_column = chosen
    if image_column not in images:
        expected = f"one of {images}" if images else "another dataset, as no column holds images"
        raise UserError(f"image-column: {image_column!r} holds no images; expected {expected}")
    stated = stated or [Feature(label_column)]
    found = [label.name for label in stated if label.name in images]
    if found and (len(stated) > 1 or found[0] == image_column):
        raise UserError(f"label-column: {found[0]!r} holds images, not classes")
    return image_column, stated, bool(found)


def _labels(
    splits: Sequence["Dataset"], columns: Sequence[Feature], request: Request
) -> tuple[NDArray, Classes, list[Note]]:
    """Return the class numbers or the numbers of all splits, the classes, and notes.

    Several columns, fractions and lists are numbers; whole numbers are if ``predict`` says so. Lists of
    classes are a number for each class, 1 for those in the list.
    """
    from datasets import ClassLabel

    label, names = columns[0], [column.name for column in columns]
    column, feature = label.name, splits[0].features[label.name]
    values = _cells(splits, column)
    if isinstance(of_list := getattr(feature, "feature", None), ClassLabel):
        named = [np.bincount(one, minlength=of_list.num_classes) > 0 for one in values]
        return np.stack(named).astype(np.float32), Classes(names=of_list.names), []
    several = len(names) > 1
    as_numbers = request.predict == "numbers" and not isinstance(feature, ClassLabel)
    if not label.values and (several or as_numbers or _holds_numbers(values)):
        found = [_numbers(_cells(splits, name), name) for name in names]
        return np.concatenate(found, axis=1), Classes(names=names if several else ()), []
    if label.values:
        targets = _of_named_classes(values, label, feature, request)
        return targets.y, Classes(targets.outputs, targets.class_names), [*targets.notes]
    if any(isinstance(value, str) for value in values):
        labels, classes = number_names(values, column)
        refuse_alike(column, classes.names)
        return labels, classes, []
    labels = as_class_numbers(values, column)
    if isinstance(feature, ClassLabel):
        return labels, Classes(feature.num_classes, feature.names), []
    return labels, Classes(), gaps(labels)


def _cells(splits: Sequence["Dataset"], column: str) -> list[Any]:
    """Return the values of a column in all splits."""
    return [value for split in splits for value in split[column]]


def _of_named_classes(values: Sequence[Any], label: Feature, feature: Any, request: Request) -> Targets:
    """Return the class numbers of values by the names that the label column is given with."""
    import pandas as pd

    if missing := sum(value is None for value in values):
        raise UserError(f"label-column: {label.name!r} is empty in {number_of(missing, 'row')}")
    words = [feature.names[value] for value in values] if hasattr(feature, "names") else values
    return encode_targets(pd.Series(words, name=label.name), label, replace(request, predict="classes"))


def _holds_numbers(values: Sequence[Any]) -> bool:
    """Return whether these are fractions, or lists of numbers of one length."""
    try:
        found = np.asarray(values)
    except ValueError:  # lists of several lengths
        return False
    several = found.ndim == 2 and found.dtype.kind in "biuf"
    return several or (found.dtype.kind == "f" and bool((found != np.floor(found)).any()))


def _numbers(values: Sequence[Any], column: str) -> NDArray[np.float32]:
    """Return the numbers of a column, or the lists of numbers, (N, values).

    Raises
    ------
    UserError
        When it holds anything else.
    """
    try:
        found = as_float32(np.asarray(values, np.float64).reshape(len(values), -1))
    except (TypeError, ValueError):
        found = np.array([[np.nan]], np.float32)
    if not np.isfinite(found).all():
        raise UserError(f"label-column: {column!r} does not hold a finite number in each row")
    return found


def _files(splits: Sequence["Dataset"], column: str) -> Iterator[ImageFile]:
    """Yield the encoded images of a column, called by their rows in their split."""
    from datasets import Image

    for split in splits:
        for row, found in enumerate(split.cast_column(column, Image(decode=False))[column]):
            content, path = ((found or {}).get(key) for key in ("bytes", "path"))
            named = f" ({path})" if path else ""
            source = content or Path(path) if path else content or b""
            yield ImageFile(f"row {row} of {column!r}{named}", source)


def _noted(files: Iterable[ImageFile], seen: list[ImageFile]) -> Iterator[ImageFile]:
    """Yield the images, and add what is known of each but its bytes."""
    for file in files:
        seen.append(file if isinstance(file.content, Path) else file._replace(content=b""))
        yield file


def _origins(
    request: Request, splits: Sequence[str], sizes: Sequence[int], files: Sequence[ImageFile]
) -> list[bytes]:
    """Return the path of each picture in the dataset's folder, or the rows of a split or a Parquet file."""
    root, stop, found = path_of(request.name), 0, list[bytes]()
    for split, size in zip(splits, sizes, strict=True):
        start, stop = stop, stop + size
        paths = [file.content for file in files[start:stop] if isinstance(file.content, Path)]
        if len(paths) == size and all(path.is_relative_to(root.resolve()) for path in paths):
            found += list(of_paths(paths, root.resolve()))
        else:
            found += list(origins.of_items(root.name if root.is_file() else split, size))
    return found


def _values_of(key: str, column: str, splits: Sequence["Dataset"]) -> NDArray[np.str_]:
    """Return a column as text; refuse one that is not there, in the name of the key that asked for it."""
    found = []
    for split in splits:
        if column not in split.features:
            raise unknown_name(key, column, split.features)
        values = split[column][:]
        if missing := sum(value is None for value in values):
            raise UserError(
                f"{key}: {column!r} is missing in {number_of(missing, 'row')}; expected a value in each"
            )
        found.append(np.asarray(values).astype(np.str_))
    return np.concatenate(found)
