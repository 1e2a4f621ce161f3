"""Check that the shared entries of a model can be published under differential privacy."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from fedbn_flower.clients import trainable_names
from fedbn_flower.clients.modules.arrays import aliases
from fedbn_flower.clients.modules.batch_norm import batch_norm_statistics
from fedbn_flower.clients.modules.lazy_torch import nn

from ...core.errors import Conflict, refuse
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
        check_example_wise(inputs)
        return ExamplePrivacy(config, example_terms(inputs) if inputs.dataset.has_examples else None)
    shared = set(inputs.split.shared) & set(trainable_names(model))
    tensors = {min(aliases(model).get(name, (name,))) for name in shared}
    refuse(_of_shared(inputs, model, tensors))
    parameters = int(sum(np.size(entries[name]) for name in tensors))
    if config.dp == "local":
        return LocalPrivacy(config, parameters)
    return account_of_clients(config, parameters)


def _of_shared(inputs: RunInputs, model: nn.Module, tensors: Collection[str]) -> Iterator[Conflict]:
    """Yield a client that shares BatchNorm statistics, or nothing that is trained."""
    config = inputs.config
    if statistics := set(inputs.split.shared) & batch_norm_statistics(model):
        wanted = f"'silobn' or 'fedbn', or a model with GroupNorm, with dp {config.dp!r}: it would share the "
        wanted += f"BatchNorm statistics of {config.model!r}, such as {min(statistics)}"
        yield Conflict("client", config.client, wanted)
    if not tensors:
        wanted = f"another one with dp {config.dp!r}: nothing that is trained is shared"
        yield Conflict("client", config.client, wanted)
