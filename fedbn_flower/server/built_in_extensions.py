"""The objects of a run that its built-in extensions are constructed from."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fedbn_flower.clients.modules.moments import pooled_layers
from fedbn_flower.strategies import PseudoGradientStrategy

from ..config.run_config import RunConfig
from ..extensions import Moment
from ..job.cases import keeps_cases
from ..job.inputs import RunInputs
from ..job.rule import set_rates
from ..privacy.example_privacy import ExamplePrivacy
from ..privacy.run_privacy import RunPrivacy
from .questions import sites_sizes
from .selection import selection_of_round


def collaborators(
    config: RunConfig,
    inputs: RunInputs,
    privacy: RunPrivacy | None,
    ends: Callable[[int, float], float] | None,
) -> Mapping[str, Mapping[str, Any]]:
    """Return the constructor arguments of built-in extensions in addition to ``run``, by extension name."""
    keeps = keeps_cases(inputs)

    def set_rate(rule: PseudoGradientStrategy, server_round: int) -> None:
        set_rates(rule, config, server_round)

    def learn_sizes(asked: Sequence[int], moment: Moment) -> None:
        """Ask sites that joined late for their sizes, if the privacy accounting depends on them."""
        if isinstance(privacy, ExamplePrivacy) and privacy.lacks(asked):
            privacy.learn(sites_sizes(inputs, moment.rule, moment.exchange.grid))

    return {
        "privacy": {"account": privacy, "complete": learn_sizes},
        "pooledstatistics": {"layers": lambda: pooled_layers(inputs.initial().module)},
        "selection": {"of_round": partial(selection_of_round, inputs)},
        "compression": {"codec": config.codec},
        "devices": {"ends": ends},
        "holdout": {
            "held_out": inputs.held_out_clients,
            "keeps_cases": keeps,
            "problem": inputs.dataset.problem,
        },
        "patience": {"problem": inputs.dataset.problem},
        "predictions": {"kept": keeps},
        "rates": {"scheduled": config.scheduled_rates, "set_rates": set_rate},
    }
