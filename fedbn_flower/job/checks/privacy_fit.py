"""Check that the shared entries of a model can be published under differential privacy."""

from __future__ import annotations

import numpy as np

from fedbn_flower.clients import trainable_names
from fedbn_flower.clients.modules.arrays import aliases
from fedbn_flower.clients.modules.batch_norm import batch_norm_statistics

from ...core.errors import not_allowed
from ...extensions.privacy import account_of_clients
from ...privacy.example_privacy import ExamplePrivacy
from ...privacy.local_privacy import LocalPrivacy
from ...privacy.run_privacy import RunPrivacy
from ..inputs import RunInputs
from ..tasks import check_example_wise, example_terms


def privacy_of(inputs: RunInputs) -> RunPrivacy | None:
    """Return the privacy of a run, or None for a run without.

    Raises
    ------
    UserError
        When DP-SGD would not protect single examples; when BatchNorm statistics are shared, or no trained
        entry is; and as `ClientPrivacy` does.
    """
    config, (model, entries) = inputs.config, inputs.model()
    if config.dp == "none":
        return None
    if config.dp == "example":
        return _example_privacy(inputs)
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
    parameters = int(sum(np.size(entries[name]) for name in tensors))
    if config.dp == "local":
        return LocalPrivacy(config, parameters)
    return account_of_clients(config, parameters)


def _example_privacy(inputs: RunInputs) -> ExamplePrivacy:
    """Return the privacy of a run in which clients train by DP-SGD."""
    check_example_wise(inputs)
    return ExamplePrivacy(inputs.config, example_terms(inputs) if inputs.dataset.has_examples else None)
