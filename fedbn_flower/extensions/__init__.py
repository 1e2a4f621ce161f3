"""What changes or watches a run without being an algorithm: a file each.

Those of `BUILT_IN` are part of every run, and do nothing without their keys.
"""

from .base import Extension, Stop
from .budget import Budget
from .compression import Compression, CompressionKeys
from .conflict import Conflict
from .devices import Devices, DevicesKeys
from .freezing import Freezing, FreezingKeys
from .holdout import Holdout, HoldoutKeys
from .patience import Patience, PatienceKeys
from .privacy import Privacy, PrivacyKeys
from .protocol import Protocol, ProtocolKeys
from .selection import Selection, SelectionKeys
from .target import Target, TargetKeys
from .update_norm import UpdateNorm

__all__ = ["BUILT_IN", "EXTENSIONS", "WITH_KEYS", "Conflict", "Extension", "ExtensionKeys", "Stop"]

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

WITH_KEYS: tuple[type[Extension], ...] = (
    Selection,
    Compression,
    Holdout,
    Target,
    Patience,
    Freezing,
    Privacy,
    Protocol,
    Devices,
)
"""Those that have keys, in the order in which is told what they do not go with."""


class ExtensionKeys(
    SelectionKeys,
    CompressionKeys,
    FreezingKeys,
    DevicesKeys,
    ProtocolKeys,
    PrivacyKeys,
    PatienceKeys,
    TargetKeys,
    HoldoutKeys,
):
    """Their keys; a group that follows a key of another one is below it."""
