"""The kinds of data by name; one file each, and a line here."""

from .dataset import Kind
from .images import Images
from .numeric import Numeric
from .quadratic import Quadratic
from .tables import Table
from .text import Text

KINDS: dict[str, type[Kind]] = {
    "images": Images,
    "table": Table,
    "text": Text,
    "numeric": Numeric,
    "quadratic": Quadratic,
}
