"""What a round gave, and whoever watches a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord

from fedbn_flower.strategies import PhaseReport

from .columns import GLOBAL


@dataclass(frozen=True)
class RoundResult:
    """What one round gave; ``evaluate`` is ``train`` itself where clients evaluate the model they trained."""

    server_round: int
    seconds: float
    arrays: ArrayRecord
    train: PhaseReport
    evaluate: PhaseReport
    means: Mapping[str, float]
    """Over the round's clients; see `metrics.round_means`."""
    global_metrics: Mapping[str, Any] | None
    figure_names: tuple[str, ...]
    """Of the held-out figures, the loss first."""
    splits: str = ""
    """On which it was evaluated; empty where it was not."""
    spread: Mapping[str, float] = field(default_factory=dict)
    """See `metrics.spread`."""
    seconds_waited: Mapping[str, float] = field(default_factory=dict)
    """For answers, by phase."""
    bytes_sent: int = 0
    bytes_received: int = 0
    new: PhaseReport | None = None
    """What the clients held out made of the model, where they were asked."""
    improved: bool = False
    """Whether patience has seen none better."""
    diverged: str = ""
    """Who found the model no longer finite, and how; empty where nobody did."""
    last: bool = False

    @property
    def figures(self) -> dict[str, float]:
        """The means, and the global model's metrics as ``global-...``; without counts by class."""
        told = {k: v for k, v in (self.global_metrics or {}).items() if not isinstance(v, list)}
        return {**self.means, **{f"{GLOBAL}{k}": v for k, v in told.items()}}

    @property
    def failures(self) -> int:
        evaluated = 0 if self.evaluate is self.train else len(self.evaluate.failures)
        return len(self.train.failures) + evaluated + len(self.new.failures if self.new else ())


class Observer:
    """Something that watches a run: the run folder, the progress bar."""

    def on_answer(self, server_round: int, phase: str, done: int, asked: int) -> None:
        """Called as a client answers, the ``done``-th of those asked; phases are ``train``, ``evaluate``."""

    def on_round(self, result: RoundResult) -> None:
        """Called after every round."""
