"""The objects of a run that its built-in extensions are constructed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fedbn_flower.clients.modules.moments import pooled_layers
from fedbn_flower.strategies import PseudoGradientStrategy

from ..extensions import Moment
from ..job.cases import keeps_cases
from ..job.rule import set_rates
from ..privacy.example_privacy import ExamplePrivacy
from .participation import end_of_round
from .questions import sites_sizes
from .selection import selection_of_round

if TYPE_CHECKING:
    from .federation import Federation


def collaborators(federation: Federation) -> Mapping[str, Mapping[str, Any]]:
    """Return the constructor arguments of built-in extensions in addition to ``run``, by extension name."""
    config, inputs, privacy = federation.config, federation.inputs, federation.privacy
    keeps = keeps_cases(inputs)

    def set_rate(rule: PseudoGradientStrategy, server_round: int) -> None:
        set_rates(rule, config, server_round)

    def learn_sizes(asked: Sequence[int], moment: Moment) -> None:
        """Ask sites that joined late for their sizes, if the privacy accounting depends on them."""
        if isinstance(privacy, ExamplePrivacy) and privacy.lacks(asked):
            privacy.learn(sites_sizes(inputs, moment.rule, moment.exchange.grid))

    return {
        **{cls.__name__.lower(): cls.made_of(federation) for cls in config.built_in_extensions},
        "privacy": {"account": privacy, "complete": learn_sizes},
        "pooledstatistics": {"layers": lambda: pooled_layers(inputs.initial().module)},
        "selection": {"of_round": partial(selection_of_round, inputs)},
        "compression": {"codec": config.codec},
        "devices": {"ends": end_of_round(federation.clock, federation.buffers)},
        "holdout": {
            "held_out": inputs.held_out_clients,
            "keeps_cases": keeps,
            "problem": inputs.dataset.problem,
        },
        "patience": {"problem": inputs.dataset.problem},
        "predictions": {"kept": keeps},
        "rates": {"scheduled": config.scheduled_rates, "set_rates": set_rate},
    }
