"""An extension of one's own: ends a run in which the training loss hardly falls.

python run_sim.py --extension examples/plateau.py:Plateau --least-fall 0.05
flwr run . --run-config "extension='examples/plateau.py:Plateau' settings='least-fall=0.05'"
"""

from collections.abc import Mapping
from math import inf
from typing import Any

from fedbn_flower import Extension, RoundResult, Stop
from fedbn_flower.strategies import setting


class Plateau(Extension):
    """Ends a run in which the training loss hardly falls."""

    least_fall: float = setting(0.01, ge=0, description="least fall of the training loss in a round")
    before = fall = inf

    def after_round(self, result: RoundResult) -> Stop | None:
        loss = result.means["train-loss"]
        self.fall, self.before = self.before - loss, loss
        return Stop("plateau") if self.fall < self.least_fall else None

    def columns(self) -> Mapping[str, float]:
        return {"loss-fall": self.fall}

    def summary(self) -> Mapping[str, Any]:
        return {"last-fall": self.fall}

    def state(self) -> Mapping[str, Any]:
        return {"before": self.before}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.before = state["before"]
