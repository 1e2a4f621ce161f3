"""Which values are tried next, and which trials are not worth going on with: Optuna's part."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import UserConfigValue

from .search_folder import COMPLETE, FAILED, PRUNED
from .space import Searched

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial

WARM_UP = 5
"""Trials with values drawn at random, before there is anything to learn from; none is pruned before as many
are complete."""


def warm_up_rounds(rounds: int) -> int:
    """In which first rounds no trial is pruned: a third of them."""
    return rounds // 3


class Study:
    """A study of Optuna's: the tree-structured Parzen estimator (Bergstra et al. 2011) and its median rule.

    The rule prunes a trial whose best figure so far is worse than the median, over complete trials, of
    their figures in the same round. What is asked for depends on the seed and on what the trials before
    came to, not on when they were made: a search goes on as if it had never stopped, from its own table.

    Parameters
    ----------
    space : tuple[Searched, ...]
        What is searched.
    seed : int
        The run's.
    rounds : int
        Of a trial.
    higher : bool
        Whether higher figures are better.
    """

    def __init__(self, space: tuple[Searched, ...], seed: int, rounds: int, higher: bool) -> None:
        import optuna  # a second that nobody else is to wait for

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.seed = seed
        self.distributions = {searched.key: _distribution(searched) for searched in space}
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
        """The trial of this number, with its values."""
        from optuna.samplers import TPESampler

        seed = int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])
        self.study.sampler = TPESampler(n_startup_trials=WARM_UP, seed=seed)
        return self.study.ask(self.distributions)

    def tell(self, trial: "Trial", state: str, value: float | None) -> None:
        """What a trial came to; its figures by round were reported to it."""
        told = value if state == COMPLETE else None
        self.study.tell(trial, told, self.states[state])

    def add(
        self,
        values: Mapping[str, UserConfigValue],
        state: str,
        value: float | None,
        by_round: Mapping[int, float],
    ) -> None:
        """A trial that has ended before."""
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


def _distribution(searched: Searched) -> "BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if searched.choices:
        return CategoricalDistribution(searched.choices)
    if searched.whole:
        return IntDistribution(int(searched.low), int(searched.high), log=True)
    return FloatDistribution(searched.low, searched.high, log=True)
