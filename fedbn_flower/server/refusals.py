"""Count the reasons for refused replies over a run, and decide when they end it."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from flwr.serverapp.exception import AggregationError, InconsistentMessageReplies

from fedbn_flower.strategies import PhaseReport, TooFewNodes
from fedbn_flower.strategies.aggregation.named_means import named_mean

from ..config.run_config import RunConfig
from ..core.errors import RunFailed
from ..core.text import listed
from ..records.events import RoundResult

MAX_REASONS = 1000  # distinct reasons that are counted: a hostile client may send new ones every round
LISTED = 3  # at most so many reasons in the log, and clients for each

DIVERGED = "diverged"
"""A word in the reason of a client whose training or evaluation was not finite; see `FedAvgClient`."""
ONE_LINE_ERRORS = (TooFewNodes, AggregationError, InconsistentMessageReplies)
"""Exceptions of a strategy whose message is one line."""


def first_to_diverge(report: PhaseReport, at_least: int = 1) -> str:
    """Return the first client and its reason if all of a phase's clients, ``at_least`` so many, diverged."""
    reasons = report.failures
    if report.metrics or len(reasons) < at_least or not all(DIVERGED in why for why in reasons.values()):
        return ""
    return "; ".join(f"client {partition}: {reasons[partition]}" for partition in sorted(reasons)[:1])


def advice(client_lr: float) -> str:
    """Return advice for a run in which all training diverges, as the end of a sentence."""
    return f"; take a smaller client-lr than {client_lr:g}"


@contextmanager
def one_line_ends_the_run() -> Iterator[None]:
    """Turn the `ONE_LINE_ERRORS` into a `RunFailed`."""
    try:
        yield
    except ONE_LINE_ERRORS as error:
        raise RunFailed(str(error)) from None


@dataclass
class Refusals:
    """Refused replies by reason and client."""

    clients: dict[str, Counter[int]] = field(default_factory=dict)

    def note(self, result: RoundResult) -> None:
        """Count the refused replies of a round."""
        phases = [result.train, *([] if result.evaluate is result.train else [result.evaluate])]
        for report in (*phases, *result.others.values()):
            for partition, reason in report.failures.items():
                if reason in self.clients or len(self.clients) < MAX_REASONS:
                    self.clients.setdefault(reason, Counter())[partition] += 1

    def lines(self) -> Iterator[str]:
        """Return a line for each of the most frequent reasons that occurred more than once."""
        counts = {reason: clients.total() for reason, clients in self.clients.items()}
        for reason, count in Counter(counts).most_common(LISTED):
            if count > 1:
                yield f"{count} replies were refused, of {self._clients_with(reason)}: {reason}"

    def main_reason(self) -> str:
        """Return the most frequent reason with its count, as the end of a sentence, or nothing."""
        if not self.clients:
            return ""
        reason, clients = max(self.clients.items(), key=lambda pair: pair[1].total())
        total = sum(counter.total() for counter in self.clients.values())
        return f"; {clients.total()} of {total} failures: {reason}"

    def never_updated(self, config: RunConfig, sampled: bool) -> RunFailed:
        """Return the error for a run in which no round had enough usable replies."""
        settings: dict[str, Any] = dict(config.algorithm_settings)
        least = max(settings.get("min-replies", 1), named_mean(settings.get("mean", "weighted")).least)
        failed = "every client failed" if least == 1 else "too few clients answered usefully"
        why = f"{failed} in every round" if sampled else "no client took part in any round"
        diverged = bool(self.clients) and all(DIVERGED in reason for reason in self.clients)
        what_to_do = advice(config.client_lr) if diverged else ""
        return RunFailed(f"{why}; the model was never updated{self.main_reason()}{what_to_do}")

    def _clients_with(self, reason: str) -> str:
        clients = [str(client) for client in sorted(self.clients[reason])]
        return f"client{'s' * (len(clients) > 1)} {listed(clients, LISTED)}"


@dataclass
class Divergence:
    """Whether a run's model is still finite.

    A single client cannot end a run by its report, unless it is the only one.
    """

    finite_round: int = 0
    """The last round whose model was evaluated and finite."""
    since: int = 0
    """The first of the latest consecutive rounds in which all training diverged; 0 if there are none."""
    rounds: int = 0
    """The number of these rounds."""
    who: str = ""
    """The first client to diverge in them, and its reason."""

    def note(self, result: RoundResult) -> None:
        """Note a round that has been written.

        Raises
        ------
        RunFailed
            If its model is not finite.
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

    def check_end(self, client_lr: float) -> None:
        """Check that some client trained successfully in the last rounds.

        Raises
        ------
        RunFailed
            If all training diverged in at least the last two rounds.
        """
        if self.rounds > 1:
            raise RunFailed(
                f"every client's training diverged from round {self.since} on ({self.who}); the model is "
                f"that of the round before{advice(client_lr)}"
            )
