"""Open a file, a folder, or a data set of the hub by its name; the usual model and partition of files."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..config.run_config import MASKS, TABLES
from ..core.errors import UserError, not_allowed, refuse
from ..core.files import path_of
from ..core.free_memory import regular
from ..core.text import hint
from ..data import sources
from ..data.dataset import COLUMNS, Decoded, Request
from ..data.sources import EMBEDDED, OF_FILES, OF_IMAGES, Source
from ..data.text import TEXT, TOKENS
from .class_folders import decode_class_folders, has_class_folders, has_class_sites
from .decoding import is_image
from .hub import decode_splits, is_saved, load_parquet, load_saved, load_splits, version_of
from .labelled_images import decode_labelled_images, of_tables_beside, tables_of_images
from .mask_folders import decode_mask_folders, has_mask_folders, has_mask_sites
from .numpy_files import decode_numpy_files, has_mask_arrays
from .pictures import FOLDER
from .tables import (
    FILE,
    SUFFIXES,
    decode_tables,
    has_pictures,
    is_text_table,
    name_sites,
    table_files,
    unread_tables,
)
from .text import decode_text, decode_tokens, paths_of_tokens
from .unread_files import ADVICE, refuse_unlabelled, suffix
from .walk import Walk, stamps, walk

HUB_NAME = re.compile(r"(?!.*\.(?!v\d)[A-Za-z]\w{1,6}$)[\w-][\w.-]*(/[\w-][\w.-]*)?", re.ASCII)
"""A hub name: it has no leading dot, and no ending that looks like a file's suffix."""
EXPECTED = "'scanners', 'digits', a table, a folder with data, or a hub name"
IMAGES = {"model": "mlp-bn", "partition": "silos"}
TABLES_OF_SITES = {"model": "mlp-bn", "partition": f"natural:{FILE}"}
SITES = {"model": "unet", "partition": f"natural:{FOLDER}"}
SITES_OF_CLASSES = {"model": "mlp-bn", "partition": f"natural:{FOLDER}"}


def open_named(request: Request) -> Source:
    """Return the source of a file, a folder, or a data set of the hub.

    Raises
    ------
    UserError
        As `open_source` does.
    """
    for prefix, open_prefixed in PREFIXES.items():
        if request.name.startswith(prefix):
            return open_prefixed(request)
    folder = regular(path_of(request.name))
    if not folder.exists():
        if not _may_be_hub_name(request.name):
            raise _missing(request.name)
        try:
            splits = load_splits(request.name, request.name)
        except UserError as error:
            reason = str(error).removeprefix("dataset: ")
            raise UserError(f"{_missing(request.name)}{hint(request.name, EMBEDDED)}; {reason}") from error
        return Source(f"{request.name} {version_of(splits)}", lambda: decode_splits(request, splits))
    if has_pictures(folder):
        file = _stamp(folder)
        return Source(f"pictures {file}", lambda: decode_splits(request, load_parquet(request.name, folder)))
    if tables := table_files(folder):
        stats = [(site, path.stat()) for files in tables.values() for site, path in files.items()]
        stamp = [(site, stat.st_size, stat.st_mtime_ns) for site, stat in stats]
        beside = [path.name for path in unread_tables(folder, tables)]
        fingerprint = f"table {folder.resolve()} {stamp}{_named(request)}{beside or ''}"
        return Source(fingerprint, lambda: decode_tables(request, tables), True, "test" in tables)
    return _folder(request, folder)


def _named(request: Request) -> str:
    """Return what is added to a table's fingerprint if its rows are private: nothing is inferred of them."""
    return ", named beforehand" if request.private else ""


def _may_be_hub_name(name: str) -> bool:
    """Return whether a name has the form ``NAME`` or ``OWNER/NAME`` and no local folder is called OWNER."""
    owner, separator, _ = name.partition("/")
    return bool(HUB_NAME.fullmatch(name)) and not (separator and Path(owner).is_dir())


def _missing(name: str) -> UserError:
    as_text = f" (for a text write '{TEXT}{name}')" if name.endswith(".txt") else ""
    prefix, colon, _ = name.partition(":")
    meant = hint(prefix + colon, [*PREFIXES, *sources.PREFIXES]) if colon else ""
    return UserError(f"dataset: no such file or folder: {name!r}{as_text or meant}")


def _folder(request: Request, folder: Path) -> Source:
    """Return the source in a folder; its fingerprint is the names, sizes and times of its files."""
    if folder.is_file():
        raise _unread_file(request.name, folder)
    found = walk(folder)
    stamped = stamps(found.files, folder)
    if not found.files:
        raise not_allowed("dataset", request.name, EXPECTED)
    name, path = request.name, str(folder.resolve())
    fingerprint = f"{path} {stamped}"
    if (folder / "train-images.npy").exists():
        refuse(request.given(f"{name!r} contains NumPy files", *OF_FILES, *COLUMNS))
        return Source(fingerprint, lambda: decode_numpy_files(request, folder))
    if is_saved(folder):
        return Source(fingerprint, lambda: decode_splits(request, load_saved(name, folder)))
    if has_mask_folders(found):
        refuse(request.given(f"{name!r} contains images and masks", *OF_IMAGES))
        return Source(f"{fingerprint} with masks", lambda: decode_mask_folders(request, found))
    if tables := tables_of_images(request, found):
        fingerprint += f" by table{_named(request)}"
        has_test = tables.test is not None
        return Source(fingerprint, lambda: decode_labelled_images(request, found, tables), True, has_test)
    if has_class_folders(found):
        refuse(request.given(f"{name!r} contains class folders", *OF_IMAGES))
        return Source(f"{fingerprint} by folder", lambda: _by_folder(request, found))
    refuse_unlabelled(request, found)
    return Source(fingerprint, lambda: decode_splits(request, load_splits(name, path)))


def _by_folder(request: Request, found: Walk) -> Decoded:
    decoded = decode_class_folders(request, found)
    return replace(decoded, notes=(*decoded.notes, *of_tables_beside(request, found)))


def _unread_file(name: str, path: Path) -> UserError:
    """Return the error for a file that is no table: by its own name, with what to do."""
    if path.suffix.lower() == ".txt" and is_text_table(path):
        found = "holds a table, and its name does not end as a table's"
        return UserError(f"dataset: {name!r} {found}; rename it to {path.stem + '.csv'!r}")
    if path.suffix == ".txt":
        return not_allowed("dataset", name, f"'{TEXT}{name}' for a text")
    if advice := ADVICE.get(suffix(path)):
        return UserError(f"dataset: {name!r} is a {suffix(path)} file, which is not read; {advice}")
    if is_image(path):
        return not_allowed("dataset", name, "the folder of the pictures, not one of them")
    ending = f"a {path.suffix} file" if path.suffix else "a file without an ending"
    tables = f"{', '.join(SUFFIXES)}, or 'scanners', 'digits', a folder with data, or a hub name"
    return UserError(f"dataset: {name!r} is {ending}, which is not read; expected {tables}")


def _text(request: Request) -> Source:
    path = path_of(request.name.removeprefix(TEXT))
    return Source(_stamp(path), lambda: decode_text(request, path))


def _tokens(request: Request) -> Source:
    tokenizer, path = map(path_of, paths_of_tokens(request.name))
    stamp = f"{_stamp(path)} by {_stamp(tokenizer)}"
    return Source(stamp, lambda: decode_tokens(request, tokenizer, path))


def _stamp(path: Path) -> str:
    """Return a file's path, size and time; OSError where it cannot be seen."""
    stamp = regular(path).stat()
    return f"{path.resolve()} {stamp.st_size} {stamp.st_mtime_ns}"


PREFIXES: dict[str, Callable[[Request], Source]] = {TEXT: _text, TOKENS: _tokens}
"""The function that opens a text, by the prefix of its name."""


def usual_of_files(dataset: str, numbers: bool) -> dict[str, str]:
    """Return ``model`` and ``partition`` for files of this name; ``numbers``: whether it is a regression."""
    if dataset.lower().endswith(SUFFIXES) and not has_pictures(path_of(dataset)):
        return TABLES
    chosen = _of_folder(path_of(dataset))
    return {**chosen, "partition": "iid"} if numbers and chosen is IMAGES else chosen


def _of_folder(folder: Path) -> dict[str, str]:
    if files := table_files(folder):
        return TABLES_OF_SITES if name_sites(files) else TABLES
    if has_mask_arrays(folder):
        return MASKS
    sites = has_mask_sites(folder)
    if sites is not None:
        return SITES if sites else MASKS
    return SITES_OF_CLASSES if has_class_sites(folder) else IMAGES
