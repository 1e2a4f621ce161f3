"""When a run has lost its model to NaN or infinity."""

from dataclasses import dataclass

from fedbn_flower.strategies import PhaseReport

from ..core.errors import RunFailed
from ..records.events import RoundResult

DIVERGED = "diverged"
"""What a client's reason says when its training or its evaluation was not finite; see `FedAvgClient`."""


def first_to_diverge(report: PhaseReport, at_least: int = 1) -> str:
    """The first client and its reason where all who were asked diverged, if so many were; else empty."""
    reasons = report.failures
    if report.metrics or len(reasons) < at_least or not all(DIVERGED in why for why in reasons.values()):
        return ""
    return "; ".join(f"client {partition}: {reasons[partition]}" for partition in sorted(reasons)[:1])


@dataclass
class Divergence:
    """What is known, round by round, of whether the model is finite.

    One client's word ends no run, unless there is only one.
    """

    finite_round: int = 0
    """The last round whose model was evaluated, and finite."""
    since: int = 0
    """The first of the last rounds in which all training diverged; 0 if it did not in the last."""
    rounds: int = 0
    """How many these are."""
    who: str = ""
    """Who was the first then, and why."""

    def note(self, result: RoundResult) -> None:
        """Take down a round.

        Raises
        ------
        RunFailed
            When it left a model that is not finite.
        """
        if result.diverged:
            last = f"that of round {self.finite_round}" if self.finite_round else "the one that it began with"
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
        """Refuse to call a run done whose last rounds trained nobody.

        Raises
        ------
        RunFailed
            When all training diverged in at least two rounds, to the last.
        """
        if self.rounds > 1:
            raise RunFailed(
                f"every client's training diverged from round {self.since} on ({self.who}); the model is "
                "that of the round before"
            )
