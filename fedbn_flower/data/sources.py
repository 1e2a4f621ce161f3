"""Open the source of a dataset by its name."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.errors import UserError, not_allowed, os_errors_as_user_errors, refuse
from ..core.files import path_of
from ..core.free_memory import regular
from ..core.text import hint
from .dataset import COLUMNS, Decoded, Request
from .images.decoding import is_image
from .readers.class_folders import decode_class_folders, has_class_folders
from .readers.digits import DIGITS, SCANNERS, decode_digits, decode_scanners
from .readers.hub import decode_splits, is_saved, load_parquet, load_saved, load_splits, version_of
from .readers.labelled_images import decode_labelled_images, of_tables_beside, tables_of_images
from .readers.made import QUADRATIC, SYNTHETIC, decode_quadratic, decode_synthetic
from .readers.mask_folders import decode_mask_folders, has_mask_folders
from .readers.numpy_files import decode_numpy_files
from .readers.tables import SUFFIXES as TABLES
from .readers.tables import decode_tables, has_pictures, is_text_table, table_files, unread_tables
from .readers.text import TEXT, TOKENS, decode_text, decode_tokens, paths_of_tokens
from .readers.unread_files import ADVICE, refuse_unlabelled, suffix
from .walk import Walk, stamps, walk

ARRAYS = "arrays:"
"""The prefix of the name of arrays passed by the caller; the rest holds their hash."""
OF_CLIENTS = "clients:"
"""The prefix of that rest if the arrays come with a client id for each example."""
OF_MASKS = ":masks"
"""The end of the name if the targets are masks, as of ``shape:SIZES:CLASSES:masks``."""
HUB_NAME = re.compile(r"(?!.*\.(?!v\d)[A-Za-z]\w{1,6}$)[\w-][\w.-]*(/[\w-][\w.-]*)?", re.ASCII)
"""A hub name: it has no leading dot, and no ending that looks like a file's suffix."""
EXPECTED = "'scanners', 'digits', a table, a folder with data, or a hub name"
GROUP = "group"
"""The column of the groups that a caller gives with arrays."""
OF_FILES = ("image_size", "spacing", "window")
"""The fields of a `Request` that are of files of images."""
OF_IMAGES = COLUMNS[:-1]
"""Those of columns that do not say whose an example is."""


@dataclass(frozen=True)
class Source:
    """A dataset that is not decoded yet: a fingerprint of its content, and the function that decodes it."""

    fingerprint: str
    decode: Callable[[], Decoded]
    has_rows: bool = False
    """Whether a table names the examples."""
    has_test: bool = False
    """Whether it says which of them are for testing."""


def open_source(request: Request) -> Source:
    """Return the source of the requested dataset.

    Raises
    ------
    UserError
        When a file or folder does not exist or cannot be read, or a key does not apply to it.
    """
    with os_errors_as_user_errors("dataset", f"read {request.name!r}"):
        source = _open(request)
    if request.split_by and (source.has_test or not source.has_rows):
        why = "have a test set" if source.has_test else "are no table, nor pictures that a table names"
        raise not_allowed("split-by", request.split_by, f"none: the data {why}")
    return source


def _open(request: Request) -> Source:
    if request.name in EMBEDDED:
        return _embedded(request)
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
    meant = hint(prefix + colon, PREFIXES) if colon else ""
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
    tables = f"{', '.join(TABLES)}, or 'scanners', 'digits', a folder with data, or a hub name"
    return UserError(f"dataset: {name!r} is {ending}, which is not read; expected {tables}")


def _cached_arrays(request: Request) -> Source:
    """Return the source of arrays passed by the caller; they exist only in the cache."""
    refuse(request.given("data is given as arrays", *OF_FILES, *OF_IMAGES))
    if request.unit_column not in ("", GROUP):
        wanted = f"none, or {GROUP!r} with simulate(groups=...): data is given as arrays"
        raise not_allowed(request.unit_key, request.unit_column, wanted)
    if request.group_column != "client" or not request.name.startswith(f"{ARRAYS}{OF_CLIENTS}"):
        refuse(request.given("data is given as arrays", "group_column"))

    def decode() -> Decoded:
        raise UserError(f"dataset: {request.name!r} is no longer in the cache; pass the arrays again")

    return Source(request.name, decode)


def _embedded(request: Request) -> Source:
    decode, columns = EMBEDDED[request.name]
    refuse(request.given("the digits are no files of scanners", *OF_FILES[1:]))
    refuse(request.given("the digits have no columns", *columns))
    return Source(request.name, lambda: decode(request))


def _generated(request: Request) -> Source:
    prefix = next(name for name in MADE if request.name.startswith(name))
    return Source(prefix, lambda: MADE[prefix](request))


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


EMBEDDED: dict[str, tuple[Callable[[Request], Decoded], tuple[str, ...]]] = {
    SCANNERS: (decode_scanners, OF_IMAGES),
    DIGITS: (decode_digits, COLUMNS),
}
"""The data that come with scikit-learn: the function that decodes them, and the keys that they refuse."""

MADE = {SYNTHETIC: decode_synthetic, QUADRATIC: decode_quadratic}
"""The functions that generate data, by the prefix of the name; data depend on the clients and the seed."""

PREFIXES: dict[str, Callable[[Request], Source]] = {
    ARRAYS: _cached_arrays,
    TEXT: _text,
    TOKENS: _tokens,
    **dict.fromkeys(MADE, _generated),
}
"""The function that opens a dataset, by the prefix of its name."""
