"""The kinds of data by name; one file each, and one line here."""

from .dataset import Kind
from .images.kind import Images
from .numeric import Numeric
from .readers.quadratic import Quadratic
from .readers.tables import Table
from .readers.text.plays import Text

KINDS: dict[str, type[Kind]] = {
    "images": Images,
    "table": Table,
    "text": Text,
    "numeric": Numeric,
    "quadratic": Quadratic,
}
