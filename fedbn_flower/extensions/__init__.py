"""What changes or watches a run without being an algorithm: a file each.

Those of `BUILT_IN` are part of every run, and do nothing without their keys.
"""

from .base import Conflict, Extension, Stop
from .budget import Budget
from .patience import Patience
from .target import Target
from .update_norm import UpdateNorm

__all__ = ["BUILT_IN", "EXTENSIONS", "Conflict", "Extension", "Stop"]

EXTENSIONS: dict[str, type[Extension]] = {
    "update-norm": UpdateNorm,
}
"""Those that a run names, by name. To add one, import it above and enter it here."""

BUILT_IN: tuple[type[Extension], ...] = (
    Target,  # a run that reaches its target in the round in which the budget is spent has reached it
    Budget,  # before patience: such a run could not have gone on
    Patience,
)
"""In the order in which they decide: the first that ends a run says why. A run's own ones come after them."""
