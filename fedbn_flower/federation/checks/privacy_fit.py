"""Check that what travels of a model can be published under differential privacy."""

from __future__ import annotations

import numpy as np

from fedbn_flower.clients import trainable_names
from fedbn_flower.clients.modules.batch_norm import batch_norm_statistics
from fedbn_flower.clients.modules.parameter_names import aliases

from ...core.errors import not_allowed
from ...privacy.client_privacy import ClientPrivacy
from ..inputs import RunInputs


def client_privacy(inputs: RunInputs) -> ClientPrivacy | None:
    """Return the privacy of a run, or None for a run without.

    Raises
    ------
    UserError
        When BatchNorm statistics travel, nothing that is trained does, or as `ClientPrivacy`.
    """
    config, (model, entries) = inputs.config, inputs.model()
    if config.dp == "none":
        return None
    if statistics := set(inputs.split.shared) & batch_norm_statistics(model):
        raise not_allowed(
            "client",
            config.client,
            f"'silobn' or 'fedbn', or a model with GroupNorm, with dp {config.dp!r}: it would share the "
            f"BatchNorm statistics of {config.model!r}, such as {min(statistics)}",
        )
    shared = set(inputs.split.shared) & set(trainable_names(model))
    tensors = {min(aliases(model).get(name, (name,))) for name in shared}
    if not tensors:
        wanted = f"another one with dp {config.dp!r}: nothing that is trained is shared"
        raise not_allowed("client", config.client, wanted)
    return ClientPrivacy(config, int(sum(np.size(entries[name]) for name in tensors)))
