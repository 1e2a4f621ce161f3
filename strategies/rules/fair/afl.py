"""AFL: Mohri et al. 2019, "Agnostic Federated Learning" (arXiv 1902.00146)."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from flwr.serverapp.exception import AggregationError
from numpy.typing import NDArray

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import START_LOSS

from ...aggregation.fold import Extras, Round
from ...aggregation.rule_state import RuleState
from ...aggregation.vectors import Vector
from ...base import PseudoGradientStrategy
from ...messages.gate import ReplyRefused
from ...messages.validation import Answer
from .qfedavg import loss_of

WEIGHTS = "client-weights"
MOST = 1e9
"""A step of a weight, which is at most 1: of longer ones float64 loses the weight."""


class AFL(PseudoGradientStrategy):
    """``x += eta sum_i l_i D_i / sum_i l_i``, ``l = P(l + gamma (M/n) F)``, P the projection on the simplex.

    Over the n answers. F_i is the training loss of the model that was sent, ``start-loss`` of the
    answer, 0 of who did not answer: M/n makes up for that. l is 1/M at first, and in the state by partition.
    M is the number of all clients. The weights are those of BatchNorm statistics too.
    """

    purpose = "Minimises the loss of the worst mixture of clients, by weights that follow their losses."
    helps = ("fairness",)
    paper = "mohri2019afl"

    requires = {"mean": {"weighted"}, "dp": {"none"}}  # noqa: RUF012
    asks: ClassVar = {START_LOSS: True}

    eta: float = setting(1.0, gt=0, alias="server-lr", description="server learning rate")
    gamma: float = setting(0.1, gt=0, alias="afl-rate", description="step size of the clients' weights")
    num_clients: int | None = setting(None, gt=0, description="M, the number of all clients")

    def weights(self, state: RuleState) -> NDArray[np.float64]:
        """Return l by partition, float64 (M,), to be changed in place."""
        if self.num_clients is None:
            raise AggregationError("AFL needs num_clients, and ask_partitions=True")
        if WEIGHTS not in state.vectors:
            state.vectors[WEIGHTS] = np.full(self.num_clients, 1 / self.num_clients)
        return state.vectors[WEIGHTS].view(np.float64)

    def answer_weights(self, asked: Sequence[int], state: RuleState) -> Mapping[int, float]:
        weights = self.weights(state)
        if beyond := [partition for partition in asked if partition >= len(weights)]:
            raise AggregationError(f"partition {beyond[0]} is none of AFL's {len(weights)} clients")
        return {partition: float(weights[partition]) for partition in asked}

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        loss = loss_of(answer, START_LOSS)
        step = self.gamma * len(self.weights(self.rule_state)) * loss
        if step > MOST:
            found = f"{START_LOSS!r} {loss:.6g} times afl-rate {self.gamma:g} moves weights by {step:.6g}"
            raise ReplyRefused(f"{found}, at most {MOST:g}: choose a smaller afl-rate", "afl-rate")
        return Extras()

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        weights = self.weights(state)
        scale = self.gamma * len(weights) / len(round.metrics)
        for partition, metrics in round.metrics.items():
            weights[partition] += scale * float(metrics[START_LOSS])  # type: ignore[arg-type]
        weights[:] = on_simplex(weights)
        return self.eta * delta


def on_simplex(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the nearest vector of numbers >= 0 with sum 1 (Duchi et al. 2008, Figure 1)."""
    descending = np.sort(vector)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, len(vector) + 1)
    projected: NDArray[np.float64] = np.maximum(vector - excess[np.flatnonzero(descending > excess)[-1]], 0)
    return projected
