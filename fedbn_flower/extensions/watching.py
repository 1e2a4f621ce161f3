"""What only watches a run: the length of each round's step, and whether the model is still finite."""

import math
from collections.abc import Mapping

import numpy as np

from fedbn_flower.strategies import PhaseReport

from ..core.errors import RunFailed
from ..records.events import RoundResult, RunInfo
from .base import Extension

DIVERGED = "diverged"
"""A word in the reason of a client whose training or evaluation was not finite; see `FedAvgClient`."""


def first_to_diverge(report: PhaseReport, at_least: int = 1) -> str:
    """Return the first client and its reason if all clients of a phase, ``at_least`` so many, diverged."""
    reasons = report.failures
    if report.metrics or len(reasons) < at_least or not all(DIVERGED in why for why in reasons.values()):
        return ""
    return "; ".join(f"client {partition}: {reasons[partition]}" for partition in sorted(reasons)[:1])


def advice(client_lr: float) -> str:
    """Return what to do where all training diverges, as the end of a sentence."""
    return f"; take a smaller client-lr than {client_lr:g}"


class Divergence(Extension):
    """Ends a run whose model is no longer finite.

    A single client cannot end a run by its report, unless it is the only one.
    """

    def __init__(self, run: RunInfo) -> None:
        super().__init__(run)
        self.finite_round = 0
        """The last round whose model was evaluated and finite."""
        self.since = 0
        """The first of the latest consecutive rounds in which all training diverged; 0 if there is none."""
        self.rounds = 0
        """How many rounds these are."""
        self.who = ""
        """The first client to diverge in them, and its reason."""

    def on_round(self, result: RoundResult) -> None:
        """Note a round that is written.

        Raises
        ------
        RunFailed
            When its model is not finite.
        """
        if result.diverged:
            last = f"that of round {self.finite_round}" if self.finite_round else "the initial one"
            raise RunFailed(
                f"round {result.server_round}: the model has diverged ({result.diverged}); the last that was "
                f"evaluated and finite is {last}"
            )
        if result.splits:
            self.finite_round = result.server_round
        if who := first_to_diverge(result.train):
            self.since, self.who = self.since or result.server_round, self.who or who
            self.rounds += 1
        elif result.train.metrics:
            self.since, self.rounds, self.who = 0, 0, ""

    def check_end(self) -> None:
        """Check that the last rounds trained somebody.

        Raises
        ------
        RunFailed
            When all training diverged in at least the last two rounds.
        """
        if self.rounds > 1:
            raise RunFailed(
                f"every client's training diverged from round {self.since} on ({self.who}); the model is "
                f"that of the round before{advice(float(self.run.config['client-lr']))}"
            )


class UpdateNorm(Extension):
    """Adds the column ``update-norm``: the L2 norm of the change of all that travels, by round."""

    published_only = True

    def __init__(self, run: RunInfo) -> None:
        super().__init__(run)
        self.norm = 0.0

    def after_round(self, result: RoundResult) -> None:
        self.norm = math.sqrt(sum(float(np.sum(change**2)) for change in result.change().values()))

    def columns(self) -> Mapping[str, float]:
        return {"update-norm": self.norm}
