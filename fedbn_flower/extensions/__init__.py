"""What changes or watches a run without being an algorithm.

Those of `ALWAYS` are part of every run, and do nothing without their keys.
"""

from collections.abc import Mapping
from typing import Any

from .. import annexes
from ..core.ground.settings import KeyGroup, flag_of
from .annex_keys import AttackKeys, ProtocolKeys, SecAggKeys
from .at_site import AtClient, Outgoing, SiteHook
from .base import Extension, Moment, ServerHook, Stop
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
from .privacy import Privacy, PrivacyKeys
from .selection import Selection, SelectionKeys
from .target import Target, TargetKeys
from .training import Freezing, FreezingKeys, PooledStatistics, Rates
from .watching import UpdateNorm

__all__ = [
    "ALWAYS",
    "EXTENSIONS",
    "KEY_GROUPS",
    "AtClient",
    "Extension",
    "ExtensionKeys",
    "Moment",
    "Outgoing",
    "ServerHook",
    "SiteHook",
    "Stop",
    "built_in",
]

EXTENSIONS: dict[str, type[Extension]] = {
    "update-norm": UpdateNorm,
}
"""Those that a run names, by name. To add one, import it above and enter it here."""

ALWAYS: tuple[type[ServerHook], ...] = (
    AdaptBN,
    Compression,
    Devices,
    FineTuning,
    Freezing,
    Holdout,
    Patience,
    PooledStatistics,
    Predictions,
    Privacy,
    Rates,
    Recalibration,
    Selection,
    Target,
)
"""The core's extensions, which every run has; they are ordered by their `place`."""


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
    """The extensions' keys, and those of annexes; a group is below the group whose key it follows."""


KEY_GROUPS = [group for group in ExtensionKeys.__bases__ if issubclass(group, KeyGroup)]
DEFAULTS = {flag_of(name): field.default for name, field in ExtensionKeys.model_fields.items()}


def built_in(config: Mapping[str, Any]) -> list[type[ServerHook]]:
    """Return a run's built-in extensions, from the wire inwards, with those of annexes that it asks for.

    Parameters
    ----------
    config : Mapping[str, Any]
        The run's configuration by key. Keys may be missing.
    """
    of_annexes = annexes.brought("extensions", annexes.asked_for(config, DEFAULTS)).values()
    return sorted((*ALWAYS, *of_annexes), key=lambda cls: cls.place)
