"""Open the source of a dataset by its name; the kinds of data."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from .. import annexes
from ..core.errors import UserError, not_allowed, os_errors_as_user_errors, refuse
from ..core.files import path_of
from ..core.session_objects import is_session_name
from .dataset import COLUMNS, Decoded, Kind, Request
from .images.kind import Images
from .numeric import Numeric, Table
from .readers.digits import DIGITS, SCANNERS, decode_digits, decode_scanners
from .readers.made import QUADRATIC, SYNTHETIC, Quadratic, decode_quadratic, decode_synthetic
from .text import Text

ARRAYS = "arrays:"
"""The prefix of the name of arrays passed by the caller; the rest holds their hash."""
OF_CLIENTS = "clients:"
"""The prefix of that rest if the arrays come with a client id for each example."""
OF_MASKS = ":masks"
"""The end of the name if the targets are masks, as of ``shape:SIZES:CLASSES:masks``."""
GROUP = "group"
"""The column of the groups that a caller gives with arrays."""
OF_FILES = ("image_size", "spacing", "window")
"""The fields of a `Request` that are of files of images."""
OF_IMAGES = COLUMNS[:-1]
"""Those of columns that do not say whose an example is."""
FUNCTION = re.compile(r".*\.py:\w+", re.DOTALL)
"""The name of a function in a file."""
KINDS: dict[str, type[Kind]] = {
    "images": Images,
    "table": Table,
    "text": Text,
    "numeric": Numeric,
    "quadratic": Quadratic,
}
"""The kinds of data by name, a line each."""


def is_function(dataset: str) -> bool:
    """Whether a dataset's name is that of a function in a file, or of an object of this session."""
    own = is_session_name(dataset) and not path_of(dataset).exists()
    return own or bool(FUNCTION.fullmatch(dataset))


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
    open_named: Callable[[Request], Source] = annexes.load("sources", "files", f"dataset: {request.name}")
    return open_named(request)


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


EMBEDDED: dict[str, tuple[Callable[[Request], Decoded], tuple[str, ...]]] = {
    SCANNERS: (decode_scanners, OF_IMAGES),
    DIGITS: (decode_digits, COLUMNS),
}
"""The data that come with scikit-learn: the function that decodes them, and the keys that they refuse."""

MADE = {SYNTHETIC: decode_synthetic, QUADRATIC: decode_quadratic}
"""The functions that generate data, by the prefix of the name; data depend on the clients and the seed."""

PREFIXES: dict[str, Callable[[Request], Source]] = {
    ARRAYS: _cached_arrays,
    **dict.fromkeys(MADE, _generated),
}
"""The function that opens a dataset, by the prefix of its name."""
