"""What a run has come to so far, beside its model: totals, the target, the best round."""

import math
from dataclasses import dataclass

from flwr.app import MessageType

from .config import RunConfig
from .exchange import Exchange

PATIENCE = "patience"


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

    def reach(self, target: float, server_round: int, mean: float | None, of_global: float | None) -> None:
        """Note the round if it is the first to reach the target."""
        if self.mean_reached is None and mean is not None and mean >= target:
            self.mean_reached = server_round
        if self.global_reached is None and of_global is not None and of_global >= target:
            self.global_reached = server_round

    def improves(self, server_round: int, value: float | None, higher_is_better: bool) -> bool:
        """Whether the round has the best validation figure so far, which is then noted; NaN never is."""
        if value is None or math.isnan(value):
            return False
        better = self.best is None or (value > self.best if higher_is_better else value < self.best)
        if better:
            self.best, self.best_round = value, server_round
        return better

    def rounds_to_target(self, target: float) -> dict[str, float | None] | None:
        """For the summary; None without a target."""
        if not target:
            return None
        return {"target": target, "mean": self.mean_reached, "global": self.global_reached}


def clients_evaluate(config: RunConfig) -> bool:
    """Whether clients are asked what the model comes to on held-out examples."""
    return config.eval_model == "local" or config.fraction_evaluate > 0
