"""What a run with several models at the server does not go with, beyond what its strategy requires."""

from __future__ import annotations

import numpy as np

from fedbn_flower.clients.modules.head import head_entries
from fedbn_flower.strategies.rules.personal import FedAP, FedPAC, layers

from ..core.errors import not_allowed
from ..job.inputs import RunInputs
from ..job.rule import first_model
from ..names import CLIENT, STRATEGY


def check_several_models(inputs: RunInputs) -> None:
    """Refuse what knows of one model only, and models to choose from that are all the same.

    Raises
    ------
    UserError
        For the first key.
    """
    config = inputs.config
    rule = STRATEGY.find(config.strategy)
    if not rule.keeps_models:
        return
    with_it = f"with strategy {config.strategy!r}"
    if CLIENT.find(config.client).pooled_by:
        wanted = f"another one {with_it}: it pools the statistics of one model"
        raise not_allowed("client", config.client, wanted)
    if issubclass(rule, FedAP):
        _check_statistics(inputs, with_it)
    if issubclass(rule, FedPAC) and head_entries(inputs.model()[0]).isdisjoint(inputs.split.shared):
        wanted = f"what leaves the head to train {with_it}, which mixes heads"
        raise not_allowed("freeze" if config.freeze else "train", config.freeze or config.train, wanted)
    if not rule.clients_choose:
        return
    further, first = first_model(inputs, 1), inputs.initial().entries
    if all(np.array_equal(first[name], further[name]) for name in inputs.stepped_names):
        why = f"{with_it}: its models have to differ"
        if config.init:
            raise not_allowed("init", config.init, f"weights that leave some that train new, {why}")
        raise not_allowed("model", config.model, f"one whose weights are drawn when it is made, {why}")


def _check_statistics(inputs: RunInputs, with_it: str) -> None:
    """Refuse a model without BatchNorm, and a client that does not share its statistics."""
    config = inputs.config
    if not (found := layers(inputs.initial().entries)):
        wanted = f"one with BatchNorm {with_it}, which compares clients by its statistics"
        raise not_allowed("model", config.model, wanted)
    if len(layers(dict.fromkeys(inputs.split.shared))) < len(found):
        wanted = f"one that shares the statistics of BatchNorm {with_it}, which compares clients by these"
        raise not_allowed("client", config.client, wanted)
