"""What the built-in extensions of a run are made of."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from fedbn_flower.clients.modules.moments import pooled_layers
from fedbn_flower.strategies import PseudoGradientStrategy

from ..extensions import Moment
from ..extensions.compression import Compression
from ..extensions.devices import Devices
from ..extensions.evaluating import Predictions
from ..extensions.holdout import Holdout
from ..extensions.patience import Patience
from ..extensions.pooled_statistics import PooledStatistics
from ..extensions.privacy import Privacy
from ..extensions.selection import Selection
from ..extensions.training import Rates
from ..job.cases import keeps_cases
from ..job.rule import set_rates
from ..privacy.example_privacy import ExamplePrivacy
from .extensions import Collaborators
from .participation import end_of_round
from .questions import sites_sizes
from .selection import selection_of_round

if TYPE_CHECKING:
    from .federation import Federation


def collaborators(federation: Federation) -> Collaborators:
    """Return what the built-in extensions are made of beside the run, by class; of others nothing."""
    config, inputs, privacy = federation.config, federation.inputs, federation.privacy
    keeps = keeps_cases(inputs)

    def set_rate(rule: PseudoGradientStrategy, server_round: int) -> None:
        set_rates(rule, config, server_round)

    def learn_sizes(asked: Sequence[int], moment: Moment) -> None:
        """Ask for the sizes of sites that joined late, where privacy is accounted by these."""
        if isinstance(privacy, ExamplePrivacy) and privacy.lacks(asked):
            privacy.learn(sites_sizes(inputs, moment.rule, moment.exchange.grid))

    return {
        **{cls: cls.made_of(federation) for cls in config.built_in_extensions},
        Privacy: {"account": privacy, "complete": learn_sizes},
        PooledStatistics: {"layers": lambda: pooled_layers(inputs.initial().module)},
        Selection: {"of_round": partial(selection_of_round, inputs)},
        Compression: {"codec": config.codec},
        Devices: {"ends": end_of_round(federation.clock, federation.buffers)},
        Holdout: {
            "held_out": inputs.held_out_clients,
            "keeps_cases": keeps,
            "problem": inputs.dataset.problem,
        },
        Patience: {"problem": inputs.dataset.problem},
        Predictions: {"kept": keeps},
        Rates: {"scheduled": config.scheduled_rates, "set_rates": set_rate},
    }
