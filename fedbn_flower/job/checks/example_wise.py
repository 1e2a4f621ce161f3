"""Check that DP-SGD protects single examples; the server checks beforehand, and each site for itself."""

from __future__ import annotations

from fedbn_flower.clients.modules.dp_sgd import obstacle

from ...core.errors import not_allowed
from ...names import LOSS, OBJECTIVE, models_named
from ...privacy.floors import Refused
from ..inputs import RunInputs


def check_example_wise(inputs: RunInputs) -> None:
    """Refuse models, objectives and losses that use more than one example at a time.

    Raises
    ------
    Refused
        Names the key.
    """
    config = inputs.config
    objective, loss = OBJECTIVE.find(config.objective), LOSS.find(config.loss)
    for partition_id, name in enumerate(models_named(config.model)):
        if why := obstacle(inputs.initial(partition_id).module, objective, loss):
            key, value, wanted = "objective", config.objective, "another one with dp 'example'"
            if why.startswith("BatchNorm"):
                key, value = "model", name
                wanted = "one with GroupNorm, such as 'simple-cnn-gn' or by norm 'group:G', with dp 'example'"
            if why.startswith("loss"):
                key, value = "loss", config.loss
            raise Refused(str(not_allowed(key, value, f"{wanted}: {why}")))
