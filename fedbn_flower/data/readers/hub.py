"""Read datasets with the `datasets` library: from the hub, from a local folder, or saved to disk."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...core.errors import UserError, not_allowed, unknown_name
from ...core.files import path_of
from ...core.free_memory import COPIES, check_fits
from ...core.listing import number_of
from ..dataset import OF_TEXTS, Decoded, Request, with_rows
from ..images.decoding import ImageDecoder, ImageFile
from ..images.kind import images_decoded
from ..images.mask_files import MaskDecoder
from ..labels import Classes, as_class_numbers, gaps, number_names, same_word
from ..masks import numbered
from ..notes import Note
from ..rounding import as_float32
from ..splits import origins
from ..splits.held_out import find_test_split, of_split_columns, train_and_test
from ..walk import walk
from .tables.column_text import Feature, joined
from .tables.header import CELL
from .tables.labels import Targets, encode_targets, find_labels
from .tables.large import check_parquet
from .tables.table_file import PARQUET
from .tables.words import alike, listed

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
    for field in ("missing_values", *OF_TEXTS):
        value, default = getattr(request, field), getattr(Request, field)
        if value != default and not request.of_site:
            wanted = f"{default!r}: {request.name!r} is read without it"
            raise not_allowed(field.replace("_", "-"), value, wanted)
    _check_fits(request.name, splits)
    if "train" not in splits:
        raise UserError(f"dataset: {request.name!r} has no train split; it has {sorted(splits)}")
    test_name, notes = find_test_split(list(splits))
    used = [splits[name] for name in ("train", test_name) if name]
    image_column, labels, are_masks = _columns(request, used[0])
    for split in used[1:]:
        if missing := {image_column, *(label.name for label in labels)} - set(split.column_names):
            raise UserError(f"dataset: the split {test_name!r} of {request.name!r} lacks {sorted(missing)}")
    sampling = request.image_size, request.spacing, request.window
    decoder, masks = ImageDecoder(*sampling), MaskDecoder(*sampling[:2])
    images, targets, places = [], [], []
    for name, split in zip(("train", test_name), used, strict=False):
        decoder.grids.clear()
        files: list[ImageFile] = []
        images.append(decoder.decode(_noted(_files(split, image_column), files), len(split)))
        places.append(_origins(request, str(name), files))
        if are_masks:
            targets.append(masks.decode(list(_files(split, labels[0].name)), decoder.grids))
    if are_masks:
        owners = [_ids(request, split) for split in used] if request.group_column else None
        targets, number, label_notes = numbered(targets, "dataset", owners)
        classes, label_notes = Classes(number), [*masks.notes(), *label_notes]
    else:
        targets, classes, label_notes = _labels(used, labels, request)
    ids = [_ids(request, split) for split in used]
    columns = [images, targets, ids, places]
    if request.unit_pattern:
        raise not_allowed(
            request.unit_key, request.unit_pattern, "the name of a column: pictures have no paths"
        )
    if request.unit_column:
        columns.append([_values_of(request.unit_key, request.unit_column, split) for split in used])
    by = request.unit_column
    train, test, held_out = train_and_test(list(zip(*columns, strict=True)), by)
    groups = (train[2], test[2]) if request.group_column else None
    notes += [*held_out, *label_notes, *decoder.notes()]
    if len(used) == 1:
        others = set(_texts(used[0])) - {label.name for label in labels} - {request.group_column}
        notes += of_split_columns({name: used[0].unique(name) for name in sorted(others)}, BY_SPLIT)
    decoded = images_decoded(train[:2], test[:2], classes, groups, notes)
    return with_rows(decoded, train[3:], test[3:])


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
) -> tuple[list[NDArray], Classes, list[Note]]:
    """Return the class numbers or the numbers of each split, the classes, and notes.

    Several columns, fractions and lists are numbers; whole numbers are if ``predict`` says so. Lists of
    classes are a number for each class, 1 for those in the list.
    """
    from datasets import ClassLabel

    label, names = columns[0], [column.name for column in columns]
    column, feature = label.name, splits[0].features[label.name]
    if isinstance(of_list := getattr(feature, "feature", None), ClassLabel):
        several_hot = [_multi_hot(split[column], of_list.num_classes) for split in splits]
        return several_hot, Classes(names=of_list.names), []
    several = len(names) > 1
    as_numbers = request.predict == "numbers" and not isinstance(feature, ClassLabel)
    if not label.values and (several or as_numbers or any(_holds_numbers(split, column) for split in splits)):
        return [_numbers(split, names) for split in splits], Classes(names=names if several else ()), []
    values = [list(split[column]) for split in splits]
    together = [value for part in values for value in part]
    stops = np.cumsum([len(part) for part in values])[:-1]
    if label.values:
        targets = _of_named_classes(together, label, feature, request)
        return np.split(targets.y, stops), Classes(targets.outputs, targets.class_names), [*targets.notes]
    if any(isinstance(value, str) for value in together):
        labels, classes = number_names(together, column)
        if same := alike(classes.names):
            form = joined([str(Feature(column, tuple(sorted({*map(same_word, classes.names)}))))])
            found = f"{listed(same)}, which differ only in case or blanks"
            raise UserError(f"label-column: {column!r} holds {found}; expected classes with names: {form!r}")
        return np.split(labels, stops), classes, []
    labels = as_class_numbers(together, column)
    if isinstance(feature, ClassLabel):
        return np.split(labels, stops), Classes(feature.num_classes, feature.names), []
    return np.split(labels, stops), Classes(), gaps(labels)


def _of_named_classes(values: Sequence[Any], label: Feature, feature: Any, request: Request) -> Targets:
    """Return the class numbers of values by the names that the label column is given with."""
    import pandas as pd

    if missing := sum(value is None for value in values):
        raise UserError(f"label-column: {label.name!r} is empty in {number_of(missing, 'row')}")
    words = [feature.names[value] for value in values] if hasattr(feature, "names") else values
    return encode_targets(pd.Series(words, name=label.name), label, replace(request, predict="classes"))


def _multi_hot(lists: Iterable[Sequence[int]], classes: int) -> NDArray[np.float32]:
    return np.stack([np.bincount(one, minlength=classes) > 0 for one in lists]).astype(np.float32)


def _holds_numbers(split: "Dataset", column: str) -> bool:
    """Return whether a column holds fractions, or lists of numbers of one length."""
    try:
        values = np.asarray(list(split[column]))
    except ValueError:  # lists of several lengths
        return False
    several = values.ndim == 2 and values.dtype.kind in "biuf"
    return several or (values.dtype.kind == "f" and bool((values != np.floor(values)).any()))


def _numbers(split: "Dataset", columns: Sequence[str]) -> NDArray[np.float32]:
    """Return the numbers in columns, or the lists of numbers in one, (N, values).

    Raises
    ------
    UserError
        When a column holds anything else.
    """
    found = []
    for column in columns:
        try:
            values = as_float32(np.asarray(list(split[column]), np.float64).reshape(len(split), -1))
        except (TypeError, ValueError):
            values = np.array([[np.nan]], np.float32)
        if not np.isfinite(values).all():
            raise UserError(f"label-column: {column!r} does not hold a finite number in each row")
        found.append(values)
    return np.concatenate(found, axis=1)


def _files(split: "Dataset", column: str) -> Iterator[ImageFile]:
    """Yield the encoded images of a column."""
    from datasets import Image

    for row, found in enumerate(split.cast_column(column, Image(decode=False))[column]):
        content, path = ((found or {}).get(key) for key in ("bytes", "path"))
        named = f" ({path})" if path else ""
        yield ImageFile(f"row {row} of {column!r}{named}", content or Path(path) if path else content or b"")


def _noted(files: Iterable[ImageFile], seen: list[ImageFile]) -> Iterator[ImageFile]:
    """Yield the images, and add what is known of each but its bytes."""
    for file in files:
        seen.append(file if isinstance(file.content, Path) else file._replace(content=b""))
        yield file


def _origins(request: Request, split: str, files: Sequence[ImageFile]) -> origins.Origins:
    """Return the path of each picture in the dataset's folder, or the rows of a split or a Parquet file."""
    root = path_of(request.name)
    paths = [file.content for file in files if isinstance(file.content, Path)]
    if len(paths) == len(files) and all(path.is_relative_to(root.resolve()) for path in paths):
        return origins.of_paths(paths, root.resolve())
    return origins.of_items(root.name if root.is_file() else split, len(files))


def _ids(request: Request, split: "Dataset") -> NDArray[np.str_]:
    """Return the natural clients' ids; empty texts if no group column was requested."""
    if not request.group_column:
        return np.full(len(split), "")
    return _values_of("partition", request.group_column, split)


def _values_of(key: str, column: str, split: "Dataset") -> NDArray[np.str_]:
    """Return a column as text; refuse one that is not there, in the name of the key that asked for it."""
    if column not in split.features:
        raise unknown_name(key, column, split.features)
    values = split[column][:]
    if missing := sum(value is None for value in values):
        raise UserError(
            f"{key}: {column!r} is missing in {number_of(missing, 'row')}; expected a value in each"
        )
    return np.asarray(values).astype(np.str_)
