"""FedAvg and Flower's variants of it: FedAvgM, FedProx, FedMedian, FedTrimmedAvg.

McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data"
(arXiv 1602.05629), Algorithm 1; with server momentum it is FedAvgM, Hsu et al. 2019 (1909.06335).
"""

from collections.abc import Iterable
from typing import ClassVar

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import PROXIMAL_MU

from ..aggregation.fold import Round
from ..aggregation.rule_state import RuleState
from ..aggregation.vectors import Vector
from ..base import CURRENT_ARRAYS, PseudoGradientStrategy
from ..messages.validation import LOGGER


def momentum_step(delta: Vector, state: RuleState, eta: float, momentum: float) -> Vector:
    """Return ``eta D``; with momentum ``eta v``, where ``v = momentum v + D``."""
    if momentum:
        velocity = state.vector("velocity", like=delta)
        velocity *= momentum
        velocity += delta
        return eta * velocity
    return eta * delta


class FedAvg(PseudoGradientStrategy):
    """``x += eta D``; with momentum ``v = momentum v + D; x += eta v``.

    With the defaults, ``x`` becomes the weighted mean of the clients' models.
    """

    purpose = "The mean of the clients' models: where to begin."
    helps: ClassVar[tuple[str, ...]] = ("baseline",)
    paper = "mcmahan2017fedavg"
    post_processes_mean = True

    _eta_: float = setting(1.0, gt=0, alias="server-lr", description="server learning rate")
    _momentum_: float = setting(0.0, ge=0, lt=1, alias="server-momentum", description="server momentum")

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        return momentum_step(delta, state, self._eta_, self._momentum_)


class FedAvgM(PseudoGradientStrategy):
    """``v = server_momentum v + D; x += server_learning_rate v``, under Flower's argument names.

    Hsu et al. 2019, "Measuring the Effects of Non-Identical Data Distribution" (arXiv 1909.06335). Flower's
    default momentum is 0, so there it equals FedAvg.
    """

    purpose = "FedAvg with momentum on the server: steadier under label skew."
    helps = ("few-rounds", "label-skew")
    paper = "hsu2019measuring"
    post_processes_mean = True

    server_learning_rate: float = setting(1.0, gt=0, alias="server-lr", description="server learning rate")
    server_momentum: float = setting(0.9, ge=0, lt=1, description="server momentum")

    current_arrays = CURRENT_ARRAYS

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        return momentum_step(delta, state, self.server_learning_rate, self.server_momentum)


class FedProx(FedAvg):
    """FedAvg that sends ``proximal-mu`` to the clients, which add the proximal term.

    Li et al. 2020, "Federated Optimization in Heterogeneous Networks" (arXiv 1812.06127). This
    project's clients add the term by the objective ``fedprox``, with any strategy.
    """

    proximal_mu: float = setting(0.0, ge=0, description="weight of the clients' proximal term")

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        if self.proximal_mu == 0:
            LOGGER.warning("FedProx initialized with `proximal_mu=0.0`: this is equivalent to FedAvg.")

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        config[PROXIMAL_MU] = self.proximal_mu
        return super().configure_train(server_round, arrays, config, grid)


class FedMedian(FedAvg):
    """FedAvg on the coordinate-wise median: Yin et al. 2018 (arXiv 1803.01498), Definition 1."""

    _mean_ = "median"


class FedTrimmedAvg(FedAvg):
    """FedAvg on the coordinate-wise trimmed mean: Yin et al. 2018 (arXiv 1803.01498), Definition 2."""

    _mean_ = "trimmed"
    beta: float = setting(0.2, ge=0, lt=0.5, description="fraction that the mean leaves out at each end")

    @property
    def _trim_(self) -> float:  # type: ignore[override]
        return self.beta
