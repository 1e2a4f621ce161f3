"""What changes or watches a run without being an algorithm.

Those of `ALWAYS` are part of every run, and do nothing without their keys.
"""

from collections.abc import Mapping
from typing import Any

from .. import annexes
from ..core.key_group import KeyGroup, flag_of
from .attack_keys import AttackKeys
from .base import AtClient, Conflict, Extension, Moment, Outgoing, Stop
from .compression import Compression, CompressionKeys
from .devices import Devices, DevicesKeys
from .evaluating import (
    AdaptBN,
    AdaptBNKeys,
    FineTuning,
    Predictions,
    PredictionsKeys,
    Recalibration,
    RecalibrationKeys,
)
from .holdout import Holdout, HoldoutKeys
from .patience import Patience, PatienceKeys
from .pooled_statistics import PooledStatistics
from .privacy import Privacy, PrivacyKeys
from .protocol_keys import ProtocolKeys
from .secagg_keys import SecAggKeys
from .selection import Selection, SelectionKeys
from .target import Target, TargetKeys
from .training import Freezing, FreezingKeys, Rates
from .watching import Divergence, UpdateNorm

__all__ = [
    "ALWAYS",
    "EXTENSIONS",
    "KEY_GROUPS",
    "AtClient",
    "Conflict",
    "Extension",
    "ExtensionKeys",
    "Moment",
    "Outgoing",
    "Stop",
    "built_in",
]

EXTENSIONS: dict[str, type[Extension]] = {
    "update-norm": UpdateNorm,
}
"""Those that a run names, by name. To add one, import it above and enter it here."""

ALWAYS: tuple[type[Extension], ...] = (
    Compression,  # nearest to the wire: the others see whole models
    PooledStatistics,  # what clients gathered, before anybody reads it as statistics
    Selection,
    Holdout,  # before whatever goes by the number of clients that train
    Freezing,
    Target,  # a run that reaches its target in the round in which the budget is spent has reached it
    Privacy,  # before patience: such a run could not have gone on
    Patience,
    Devices,
    Rates,
    FineTuning,
    AdaptBN,
    Predictions,
    Recalibration,
    Divergence,
)
"""In the order from the wire: what comes from it goes through them in this order, what goes to it (`send`,
`settings`, `trained`) in the opposite one. Of those that end a run in one round, the first says why; of those
that do not go with the rest of a configuration, it is told first. A run's own ones come after them; those of
annexes say which they come before."""


class ExtensionKeys(
    SelectionKeys,
    CompressionKeys,
    FreezingKeys,
    DevicesKeys,
    ProtocolKeys,
    PrivacyKeys,
    AttackKeys,
    SecAggKeys,
    PatienceKeys,
    TargetKeys,
    HoldoutKeys,
    PredictionsKeys,
    AdaptBNKeys,
    RecalibrationKeys,
):
    """Their keys, and those of annexes; a group that follows a key of another one is below it."""


KEY_GROUPS = [group for group in ExtensionKeys.__bases__ if issubclass(group, KeyGroup)]
DEFAULTS = {flag_of(name): field.default for name, field in ExtensionKeys.model_fields.items()}


def built_in(config: Mapping[str, Any]) -> list[type[Extension]]:
    """Return the built-in extensions of a run, in the order from the wire: of annexes' those it asks for.

    Parameters
    ----------
    config : Mapping[str, Any]
        The run's configuration by key. Keys may be missing.
    """
    found = list(ALWAYS)
    for cls in annexes.brought("extensions", annexes.asked_for(config, DEFAULTS)).values():
        assert cls.next_to
        found.insert(found.index(cls.next_to), cls)
    return found
