"""The kinds of data by name; one file each, and a line here."""

from .dataset import Kind
from .images import Images
from .numeric import Numeric
from .tables import Table

KINDS: dict[str, type[Kind]] = {"images": Images, "table": Table, "numeric": Numeric}
