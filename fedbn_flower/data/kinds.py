"""The kinds of data by name, a line each."""

from .dataset import Kind
from .images.kind import Images
from .numeric import Numeric, Table
from .readers.made import Quadratic
from .text import Text

KINDS: dict[str, type[Kind]] = {
    "images": Images,
    "table": Table,
    "text": Text,
    "numeric": Numeric,
    "quadratic": Quadratic,
}
