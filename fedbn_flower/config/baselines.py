"""Reference runs: what a federation is compared with, each one configuration whatever it is named with."""

import logging
from collections.abc import Mapping
from typing import Any

from ..extensions import BUILT_IN
from ..names import CLIENT, LOSS
from .keys import RUN_KEYS, flag_of
from .named_algorithms import NOT_GIVEN, settings_of

LOGGER = logging.getLogger("flwr.fedbn")
_KEYS = [cls.keys for cls in BUILT_IN if cls.keys]
WITHOUT_MEANING = (
    *("fine-tune", "adapt-bn", "weighting", "fraction-train", "fraction-evaluate"),
    *("stragglers", "drop-stragglers", "dropout", "availability", "server-lr-schedule"),
    *("selection", "compress", "error-feedback", "compress-down"),
    *(flag_of(name) for keys in _KEYS if not keys.of_references for name in keys.model_fields),
)
"""Own keys that a reference has at their defaults: everybody takes part in all of it."""

ALGORITHMS = {
    "alone": {"strategy": "fedavg", "client": "alone", "objective": "plain"},
    "pooled": {
        **{"strategy": "fedavg", "client": "shared", "objective": "plain"},
        **{"eval-model": "aggregated", "fast": "off"},
    },
}


def baseline_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """The one configuration that a reference comes to, from all keys and settings of a run it goes with.

    - ``alone``: every client trains alone on its data, in every round; nothing of a model travels.
    - ``pooled``: one model is trained by plain SGD, or the clients' optimiser, on all clients' training data
      in one place. Partition 0 does it; every client evaluates the model, as it does in the other runs.

    Both make as many passes over their data as the clients of the other runs do, ``rounds`` times
    ``local-epochs``, and their optimiser begins anew with every round, as it does there. Both are without
    privacy, of which a line warns if the others have it.
    """
    if values.get("dp", "none") != "none":
        LOGGER.warning(
            "reference: %r has no dp, so it is itself a release: nothing bounds what its model, or "
            "a metric of "
            "it, tells of the data that dp=%s protects",
            values["reference"],
            values["dp"],
        )
    loss: type = LOSS.find(str(values["loss"]))
    kept = RUN_KEYS.keys() | settings_of(loss).keys()
    of_client = ("norm",) if values["norm"] == CLIENT.find(str(values["client"])).norm else ()
    defaults = {key: RUN_KEYS[key].default for key in (*WITHOUT_MEANING, *of_client)}
    known = {key: v for key, v in values.items() if key in RUN_KEYS or (key in kept and v != NOT_GIVEN)}
    return known | defaults | ALGORITHMS[values["reference"]]
