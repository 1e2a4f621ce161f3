"""What changes or watches a run without being an algorithm: a file each.

Those of `BUILT_IN` are part of every run, and do nothing without their keys.
"""

from .base import AtClient, Conflict, Extension, Moment, Outgoing, Stop
from .budget import Budget
from .compression import Compression
from .devices import Devices
from .divergence import Divergence
from .fine_tuning import FineTuning
from .newcomers import Newcomers
from .patience import Patience
from .protocol import Asynchronous
from .rates import Rates
from .selection import ClientSelection
from .target import Target
from .update_norm import UpdateNorm

__all__ = [
    "BUILT_IN",
    "EXTENSIONS",
    "AtClient",
    "Conflict",
    "Extension",
    "Moment",
    "Outgoing",
    "Stop",
]

EXTENSIONS: dict[str, type[Extension]] = {
    "update-norm": UpdateNorm,
}
"""Those that a run names, by name. To add one, import it above and enter it here."""

BUILT_IN: tuple[type[Extension], ...] = (
    Compression,  # nearest to the wire: the others see whole models
    Target,  # a run that reaches its target in the round in which the budget is spent has reached it
    Budget,  # before patience: such a run could not have gone on
    Patience,
    Devices,
    Asynchronous,
    ClientSelection,
    Rates,
    FineTuning,
    Newcomers,
    Divergence,
)
"""In the order from the wire: what comes from it goes through them in this order, what goes to it (`send`,
`settings`, `trained`) in the opposite one. Of those that end a run in one round, the first says why. A run's
own ones come after them."""
