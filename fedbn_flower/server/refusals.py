"""Count why replies were refused, over a whole run; and what of it ends the run."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from flwr.serverapp.exception import AggregationError, InconsistentMessageReplies

from fedbn_flower.strategies import TooFewNodes
from fedbn_flower.strategies.aggregation.named_means import named_mean

from ..config.run_config import RunConfig
from ..core.errors import RunFailed
from ..extensions.watching import DIVERGED, advice
from ..records.events import RoundResult

MAX_REASONS = 1000  # distinct reasons that are counted: a hostile client may send new ones every round
LISTED = 3  # reasons in the log, and clients of one reason

ONE_LINE_ERRORS = (TooFewNodes, AggregationError, InconsistentMessageReplies)
"""Exceptions of a strategy whose message is one line."""


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
        """Return the error of a run of which no round had enough usable replies."""
        settings: dict[str, Any] = dict(config.algorithm_settings)
        least = max(settings.get("min-replies", 1), named_mean(settings.get("mean", "weighted")).least)
        failed = "every client failed" if least == 1 else "too few clients answered usefully"
        why = f"{failed} in every round" if sampled else "no client took part in any round"
        diverged = bool(self.clients) and all(DIVERGED in reason for reason in self.clients)
        what_to_do = advice(config.client_lr) if diverged else ""
        return RunFailed(f"{why}; the model was never updated{self.main_reason()}{what_to_do}")

    def _clients_with(self, reason: str) -> str:
        clients = sorted(self.clients[reason])
        first = ", ".join(map(str, clients[:LISTED]))
        more = f" and {len(clients) - LISTED} others" if len(clients) > LISTED else ""
        return f"client{'s' * (len(clients) > 1)} {first}{more}"
