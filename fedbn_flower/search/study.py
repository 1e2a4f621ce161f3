"""Choose the values of trials, and prune bad trials, with Optuna."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import UserConfigValue

from .search_folder import COMPLETE, FAILED, PRUNED

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial

WARM_UP = 5
"""The number of first trials with random values; no trial is pruned before as many are complete."""


def warm_up_rounds(rounds: int) -> int:
    """Return the number of first rounds in which no trial is pruned: a third of all."""
    return rounds // 3


@dataclass(frozen=True)
class Dimension:
    """A key of a search space: one of the choices, or a number from low to high, log-uniform.

    The bounds are ints for whole numbers, else floats. With choices, ``low`` and ``high`` are 0.
    """

    key: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int)

    @property
    def ends(self) -> tuple[UserConfigValue, ...]:
        """All choices, or the lowest and the highest number."""
        return self.choices or (self.low, self.high)

    def __str__(self) -> str:
        comma = ";" if any("," in choice for choice in self.choices) else ","
        return comma.join(self.choices) if self.choices else f"{self.low}..{self.high}"

    def parse(self, text: str) -> UserConfigValue:
        """Parse a value from the text of a table."""
        return text if self.choices else int(text) if self.whole else float(text)


class Study:
    """An Optuna study with the tree-structured Parzen estimator (Bergstra et al. 2011) and median pruning.

    A trial is pruned if its best metric so far is worse than the median, over complete trials, of their
    metrics in the same round. The values of a trial depend only on the seed and on the results of the trials
    before it. So a search that is resumed from its table continues as if it had not been interrupted.

    Parameters
    ----------
    space : tuple[Dimension, ...]
        The search space.
    seed : int
        The run's seed.
    rounds : int
        The number of rounds of a trial.
    higher : bool
        Whether higher metrics are better.
    """

    def __init__(self, space: tuple[Dimension, ...], seed: int, rounds: int, higher: bool) -> None:
        import optuna  # imported late: takes a second

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.seed = seed
        self.distributions = {dimension.key: _distribution(dimension) for dimension in space}
        self.study = optuna.create_study(
            direction="maximize" if higher else "minimize",
            pruner=optuna.pruners.MedianPruner(WARM_UP, warm_up_rounds(rounds) + 1),
        )
        self.states = {
            COMPLETE: optuna.trial.TrialState.COMPLETE,
            PRUNED: optuna.trial.TrialState.PRUNED,
            FAILED: optuna.trial.TrialState.FAIL,
        }

    def ask(self, number: int) -> "Trial":
        """Return the trial of this number, with its values."""
        from optuna.samplers import TPESampler

        seed = int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])
        self.study.sampler = TPESampler(n_startup_trials=WARM_UP, seed=seed)
        return self.study.ask(self.distributions)

    def tell(self, trial: "Trial", state: str, value: float | None) -> None:
        """Record a trial's result; its metrics by round were reported before."""
        result = value if state == COMPLETE else None
        self.study.tell(trial, result, self.states[state])

    def add(
        self,
        values: Mapping[str, UserConfigValue],
        state: str,
        value: float | None,
        by_round: Mapping[int, float],
    ) -> None:
        """Add a trial that has ended before."""
        from optuna.trial import create_trial

        self.study.add_trial(
            create_trial(
                state=self.states[state],
                value=value,
                params=dict(values),
                distributions=self.distributions,
                intermediate_values=dict(by_round),
            )
        )


def _distribution(dimension: Dimension) -> "BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if dimension.choices:
        return CategoricalDistribution(dimension.choices)
    if dimension.whole:
        return IntDistribution(int(dimension.low), int(dimension.high), log=True)
    return FloatDistribution(dimension.low, dimension.high, log=True)
