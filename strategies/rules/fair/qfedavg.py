"""q-FedAvg: Li et al. 2020, "Fair Resource Allocation in Federated Learning" (arXiv 1905.10497)."""

from typing import ClassVar

import numpy as np

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import START_LOSS

from ...aggregation.fold import Extras, Round
from ...aggregation.rule_state import RuleState
from ...aggregation.vectors import Vector, finite
from ...base import CURRENT_ARRAYS, PseudoGradientStrategy
from ...messages.gate import ReplyRefused
from ...messages.validation import Answer, update_norm

FLOOR = 1e-10
"""Added to a loss, as in the authors' code: 0 has no power below 0."""
LARGEST = 1e30
"""Of an answer's factor and h: float32, in which answers are summed, holds no products above 3e38."""


def loss_of(answer: Answer, key: str) -> float:
    """Return the loss that an answer reports of the model that was sent.

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
    mean. Whoever reports a great loss has a great weight, so it trusts its clients.
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
