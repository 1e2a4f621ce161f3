"""The kinds of data by name; one file each, and a line here."""

from .dataset import Kind
from .images import Images
from .quadratic import Quadratic
from .synthetic import Synthetic
from .text import Text

KINDS: dict[str, type[Kind]] = {
    "images": Images,
    "text": Text,
    "synthetic": Synthetic,
    "quadratic": Quadratic,
}
