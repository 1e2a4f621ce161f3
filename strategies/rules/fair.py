"""Rules that weight clients by their loss.

q-FedAvg: Li et al. 2020, "Fair Resource Allocation in Federated Learning" (arXiv 1905.10497).
TERM: Li et al. 2021, "Tilted Empirical Risk Minimization" (arXiv 2007.01162).
AFL: Mohri et al. 2019, "Agnostic Federated Learning" (arXiv 1902.00146).
"""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from flwr.serverapp.exception import AggregationError
from numpy.typing import NDArray

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import START_LOSS

from ..aggregation.fold import CURRENT_ARRAYS, Extras, Round
from ..aggregation.rule_state import RuleState
from ..aggregation.vectors import Vector, finite
from ..base import PseudoGradientStrategy
from ..messages.gate import ReplyRefused
from ..messages.validation import Answer, update_norm
from .averaging import FedAvg

FLOOR = 1e-10
"""Added to a loss, as in the authors' code: 0 has no power below 0."""
LARGEST = 1e30
"""Of an answer's factor and h: float32, in which answers are summed, holds no products above 3e38."""


def loss_of(answer: Answer, key: str) -> float:
    """Return the loss of the model that was sent, as reported by an answer.

    Raises
    ------
    ReplyRefused
        When there is none, or it is negative or not finite.
    """
    loss = answer.metrics.get(key)
    if not isinstance(loss, int | float):
        raise ReplyRefused(f"{key!r} is missing from the metrics, or no number", f"no {key}")
    if not 0 <= loss < np.inf:
        raise ReplyRefused(f"{key!r} is {loss}, not a finite number >= 0", f"no loss {key}")
    return float(loss)


class QFedAvg(PseudoGradientStrategy):
    """``x += L sum_i F_i^q D_i / sum_i (q F_i^(q-1) L^2 |D_i|^2 + L F_i^q)``, ``L = 1 / client_lr``.

    Over the answers. F_i is the training loss of the model that was sent, before the client trains: the
    answer's metric ``start-loss``, or ``train_loss_key`` where there is none. With q = 0 it is the plain
    mean. A client that reports a large loss gets a large weight, so this rule trusts its clients.
    """

    purpose = "Evens out how well the model fits each client, by more weight for great losses."
    helps = ("fairness",)
    paper = "li2020qffl"

    requires = {"mean": {"weighted"}, "clip-update-norm": {0.0}, "dp": {"none"}}  # noqa: RUF012
    weighs_alike = True
    asks: ClassVar = {START_LOSS: True}
    reads_extras_anywhere = True

    _settings_before_: ClassVar[str] = "fraction_train"
    client_learning_rate: float = setting(
        gt=0, alias="client-lr", description="learning rate of the clients, 1 / L"
    )
    q: float = setting(0.1, ge=0, description="fairness: how much more a greater loss weighs; 0 for none")
    train_loss_key: str = setting(
        "train_loss", exclude=True, description="metric with the loss, where clients report no start-loss"
    )

    current_arrays = CURRENT_ARRAYS

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        key = START_LOSS if START_LOSS in answer.metrics else self.train_loss_key
        loss = loss_of(answer, key) + FLOOR
        lipschitz = 1 / self.client_learning_rate
        norm = lipschitz * update_norm(answer.arrays, finite(round.sent), round.layout.tensors)
        with np.errstate(over="ignore"):
            power = float(np.float_power(loss, self.q))
            h = self.q * float(np.float_power(loss, self.q - 1)) * norm**2 + lipschitz * power
        if not max(h, lipschitz * power) <= LARGEST:
            raise ReplyRefused(f"{key!r} is {loss}, whose power {self.q} is too large", f"no loss {key}")
        return Extras(lipschitz * power, {"h": np.array([h])})

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        return delta / float(round.means["h"][0])


MOST_TILTED = 60.0
"""Of t F_i: float32 holds weights up to e^88."""


class TERM(FedAvg):
    """FedAvg with the weights ``p_i e^(t F_i)``: the gradient of the tilted loss over clients.

    F_i is the training loss of the model that was sent, before the client trains: ``start-loss`` of its
    answer. t > 0 favours clients whom the model fits badly, t < 0 those whom it fits well; with t = 0 it is
    FedAvg. The weights are those of BatchNorm statistics too.
    """

    purpose = "Weighs clients by the exponential of their loss: fair with t > 0, robust with t < 0."
    helps = ("fairness",)
    paper = "li2021term"

    requires = {"mean": {"weighted", "geometric-median"}, "dp": {"none"}}  # noqa: RUF012
    asks: ClassVar = {START_LOSS: True}
    reads_extras_anywhere = True

    tilt: float = setting(1.0, description="t, how strongly losses tilt the weights")

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        loss = loss_of(answer, START_LOSS)
        if abs(self.tilt * loss) > MOST_TILTED:
            found = f"{START_LOSS!r} {loss:.6g} times tilt {self.tilt:g} is beyond {MOST_TILTED:g}"
            raise ReplyRefused(f"{found}: choose a smaller tilt", "tilt")
        return Extras(share=math.exp(self.tilt * loss))


WEIGHTS = "client-weights"
MOST_SUMMED = 1e9
"""A step of a weight, which is at most 1: of longer ones float64 loses the weight."""


class AFL(PseudoGradientStrategy):
    """``x += eta sum_i l_i D_i / sum_i l_i``, ``l = P(l + gamma (M/n) F)``, P the projection on the simplex.

    Over the n answers. F_i is the training loss of the model that was sent, ``start-loss`` of the answer, 0
    for clients that did not answer, for which M/n compensates. l is 1/M at first, and in the state by
    partition. M is the number of all clients. The weights are those of BatchNorm statistics too.
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
        if step > MOST_SUMMED:
            found = f"{START_LOSS!r} {loss:.6g} times afl-rate {self.gamma:g} moves weights by {step:.6g}"
            raise ReplyRefused(f"{found}, at most {MOST_SUMMED:g}: choose a smaller afl-rate", "afl-rate")
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
