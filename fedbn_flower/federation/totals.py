"""What a run has come to so far, beside its model: totals, the target, the best round."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import MessageType

from fedbn_flower.clients import Problem

from ..config.run_config import RunConfig
from .exchange import Exchange

PATIENCE, TARGET = "patience", "target"


@dataclass
class Account:
    """It goes into every checkpoint, so that a resumed run goes on counting."""

    train_seconds: float = 0.0
    evaluate_seconds: float = 0.0
    server_seconds: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0
    client_updates: int = 0
    """Answers to train messages that were used."""
    mean_reached: int | None = None
    """The first round in which the clients' mean over held-out examples reached the target."""
    global_reached: int | None = None
    """The same of the global model."""
    best: float | None = None
    best_round: int | None = None
    stopped: str | None = None
    """Why the run ended before its last round."""

    def add(self, seconds: float, exchange: Exchange, updates: int) -> None:
        """Count a round."""
        train, evaluate = exchange.seconds[MessageType.TRAIN], exchange.seconds[MessageType.EVALUATE]
        self.train_seconds += train
        self.evaluate_seconds += evaluate
        self.server_seconds += seconds - train - evaluate
        self.bytes_sent += exchange.bytes_sent
        self.bytes_received += exchange.bytes_received
        self.client_updates += updates

    def note(
        self,
        config: RunConfig,
        problem: Problem,
        server_round: int,
        means: Mapping[str, float],
        of_global: Mapping[str, Any],
    ) -> bool:
        """Take down an evaluated round's figures: the clients' means over held-out examples, and the global
        model's. Whether patience has seen none better. What ends a run early goes by the means where clients
        evaluate."""
        by = problem.compared_by
        if config.target_accuracy:
            if self.mean_reached is None and means.get(by, -1) >= config.target_accuracy:
                self.mean_reached = server_round
            if self.global_reached is None and of_global.get(by, -1) >= config.target_accuracy:
                self.global_reached = server_round
        value = (means if clients_evaluate(config) else of_global).get(by, math.nan)
        if config.stop_at_target and value >= config.target_accuracy:
            self.stopped = TARGET
        if not config.patience or math.isnan(value):
            return False
        higher = by in problem.higher_is_better
        if self.best is None or (value > self.best if higher else value < self.best):
            self.best, self.best_round = value, server_round
            return True
        return False

    def is_to_end(self, config: RunConfig, server_round: int) -> bool:
        """Whether the run is to end after this evaluated round, which has been noted."""
        if config.patience and server_round - (self.best_round or 0) >= config.patience:
            self.stopped = self.stopped or PATIENCE
        ends = self.stopped is not None
        if server_round == config.rounds:
            self.stopped = None
        return ends

    def rounds_to_target(self, target: float) -> dict[str, float | None] | None:
        """For the summary; None without a target."""
        if not target:
            return None
        return {"target": target, "mean": self.mean_reached, "global": self.global_reached}


def clients_evaluate(config: RunConfig) -> bool:
    """Whether clients are asked what the model comes to on held-out examples."""
    return config.eval_model == "local" or config.fraction_evaluate > 0
