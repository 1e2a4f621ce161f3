"""FedAvg, Flower's variants of it, and rules that reweight or extrapolate the mean of the updates.

FedAvg: McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data"
(arXiv 1602.05629), Algorithm 1; with server momentum it is FedAvgM, Hsu et al. 2019 (1909.06335).
FedDisco: Ye et al. 2023, "Federated Learning with Discrepancy-Aware Collaboration" (arXiv 2305.19229).
FedNova: Wang et al. 2020, "Tackling the Objective Inconsistency Problem" (arXiv 2007.07481).
FedExP: Jhunjhunwala et al. 2023, "Federated Averaging via Extrapolation" (arXiv 2301.09604).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.exception import AggregationError

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import LOCAL_NORM, LOCAL_STEPS, NUM_EXAMPLES, PROXIMAL_MU

from ..aggregation.fold import CURRENT_ARRAYS, Extras, Round
from ..aggregation.rule_state import CLASS_COUNTS, RuleState
from ..aggregation.vectors import Vector, finite
from ..base import PseudoGradientStrategy
from ..messages.gate import ReplyRefused
from ..messages.validation import LOGGER, MAX_WEIGHT, Answer, positive_number, update_norm


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


class MultiKrum(FedAvg):
    """FedAvg on the mean of the ``num_nodes_to_select`` answers that Krum scores best.

    Blanchard et al. 2017 (arXiv 1703.02757), Section 4. It needs 2 ``num_malicious_nodes`` + 3 answers.
    """

    _settings_before_: ClassVar[str] = "weighted_by_key"
    num_malicious_nodes: int = setting(0, ge=0, description="answers that may be lies")
    num_nodes_to_select: int = setting(1, ge=1, description="answers that count")

    @property
    def _mean_(self) -> str:  # type: ignore[override]
        return f"multi-krum:{self.num_malicious_nodes},{self.num_nodes_to_select}"


class Krum(MultiKrum):
    """FedAvg on the one answer that Krum scores best: Blanchard et al. 2017 (arXiv 1703.02757), Section 4."""

    @property
    def num_nodes_to_select(self) -> int:  # type: ignore[override]
        return 1


class Bulyan(FedAvg):
    """FedAvg on Bulyan over Krum: El Mhamdi et al. 2018 (arXiv 1802.07927), Section 4.

    It needs 4 ``num_malicious_nodes`` + 3 answers.
    """

    _settings_before_: ClassVar[str] = "weighted_by_key"
    num_malicious_nodes: int = setting(0, ge=0, description="answers that may be lies")

    @property
    def _mean_(self) -> str:  # type: ignore[override]
        return f"bulyan:{self.num_malicious_nodes}"


class FedDisco(FedAvg):
    """FedAvg with weights proportional to ``relu(p_i - a d_i + b)``.

    p_i is client i's share of the examples of those that are asked, d_i the L2 distance of its shares of
    the classes from the shares in all clients' data together. Counts of classes travel once: the server needs
    them before the first round, as the vector ``class-counts`` of its state. A client without counts has
    weight 0. If no weight is positive, all are p_i. The authors' code has other distances, too; its default
    is the Kullback-Leibler divergence, divided by its sum over the clients.
    """

    purpose = "Gives clients with unusual shares of classes less weight than their size would."
    helps = ("label-skew",)
    paper = "ye2023feddisco"

    requires = {  # noqa: RUF012
        "mean": {"weighted", "geometric-median"},
        "weighting": {"num-examples"},
        "dp": {"none"},  # class counts are private
    }
    of_classes = True

    a: float = setting(0.5, ge=0, alias="disco-a", description="how much a distance takes off the weight")
    b: float = setting(0.1, ge=0, alias="disco-b", description="what is added to every weight")

    def answer_weights(self, asked: Sequence[int], state: RuleState) -> Mapping[int, float]:
        counts = state.vectors.get(CLASS_COUNTS)
        if counts is None or any(partition >= len(counts) for partition in asked):
            wanted = f"rule_state.vectors[{CLASS_COUNTS!r}], (clients, classes), and ask_partitions=True"
            raise AggregationError(f"FedDisco needs {wanted}")
        sizes = counts.sum(axis=1)
        shares = counts / np.maximum(sizes, 1)[:, None]
        distances = np.linalg.norm(shares - counts.sum(axis=0) / counts.sum(), axis=1)
        total = max(sizes[list(asked)].sum(), 1)
        sized = {partition: float(sizes[partition] / total) for partition in asked}
        far = {i: self.a * float(distances[i]) for i in asked}
        weights = {i: max(0.0, p - far[i] + self.b) if p else 0.0 for i, p in sized.items()}
        return weights if any(weights.values()) else sized


LEAST_WORK = 0.1


class FedNova(PseudoGradientStrategy):
    """``x += eta tau_eff sum_i p_i (x_i - x) / a_i`` with ``tau_eff = sum_i p_i a_i`` (equations 6 to 8).

    a_i is the L1 norm of client i's accumulation vector. It is ``local-norm`` if the client reports it.
    Otherwise it is computed from its ``local-steps`` K: K for plain SGD, and
    ``(K - rho (1 - rho^K) / (1 - rho)) / (1 - rho)`` with momentum rho. If all a_i are equal, the rule equals
    FedAvg. With a robust mean, both sums are replaced by that mean, without p_i.

    An answer with an a_i below `LEAST_WORK` is refused: a step counts 1, and only a strong proximal term
    reduces that. If ``local_epochs`` is given, more steps than in that many passes over ``num-examples``
    are refused too. With rho, a_i is at most K / (1 - rho).
    """

    purpose = "For clients that do unequal amounts of local work."
    helps = ("unequal-work",)
    paper = "wang2020fednova"

    requires = {"client-optimizer": {"sgd"}}  # noqa: RUF012
    reads_extras_anywhere = True

    eta: float = setting(1.0, gt=0, alias="server-lr", description="server learning rate")
    client_momentum: float = setting(0.0, ge=0, lt=1, description="rho, the momentum of the clients' SGD")
    local_epochs: int | None = setting(
        None, gt=0, exclude=True, description="maximum passes over a client's examples, if known"
    )
    batch_size: int = setting(1, ge=0, exclude=True, description="examples per step; 0 for all")

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        work = self._work(answer)
        return Extras(1.0 / work, {"work": np.array([work])})

    def _work(self, answer: Answer) -> float:
        rho, max_steps = self.client_momentum, self._max_steps(answer)
        if LOCAL_NORM in answer.metrics:
            norm = positive_number(answer.metrics, LOCAL_NORM, cap=max_steps / (1 - rho))
            if norm < LEAST_WORK:
                raise ReplyRefused(f"{LOCAL_NORM!r} is {norm}, less than {LEAST_WORK}")
            return norm
        steps = positive_number(answer.metrics, LOCAL_STEPS, whole=True, cap=max_steps)
        return float((steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho))

    def _max_steps(self, answer: Answer) -> float:
        if self.local_epochs is None:
            return MAX_WEIGHT
        count = positive_number(answer.metrics, NUM_EXAMPLES, cap=self._max_weight_ or MAX_WEIGHT)
        return self.local_epochs * math.ceil(count / (self.batch_size or count))

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        return self.eta * float(round.means["work"][0]) * delta


SQUARES = "squares"
STEP = "last-step"


class FedExP(PseudoGradientStrategy):
    """``x += max(1, sum_i p_i |D_i|^2 / (2 (|D|^2 + eps))) D``; the mean of the last two x is the model.

    The server needs the sum of the squared norms in addition to that of the updates. The mean of the last two
    x is evaluated and kept, as an extrapolated x oscillates about the optimum. After the first round they are
    the initial and the first one; the authors' code begins with the mean a round later. There eps is
    multiplied by the number of answers, and shrinks as the square of the clients' rate. BatchNorm statistics
    are those of the last x.
    """

    purpose = "FedAvg with longer steps where clients' updates disagree; nothing to tune."
    helps = ("few-rounds",)
    paper = "jhunjhunwala2023fedexp"

    requires = {"mean": {"weighted"}, "compress-down": {"none"}}  # noqa: RUF012
    reads_extras_anywhere = True

    epsilon: float = setting(
        1e-3, ge=0, alias="exp-epsilon", description="added to |D|^2: bounds a step where D vanishes"
    )

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        norm = update_norm(answer.arrays, finite(round.sent), round.layout.tensors)
        norm = min(norm, self._clip_update_norm_ or norm)
        return Extras(vectors={SQUARES: np.array([norm**2])})

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        parts = dict(round.layout.slices(round.layout.parameters, delta))
        squared = sum(
            float(np.square(parts[names[0]], dtype=np.float64).sum()) for names in round.layout.tensors
        )
        greatest = float(round.means[SQUARES][0]) / 2
        factor = greatest / (squared + self.epsilon) if squared + self.epsilon > 0 else 1.0
        delta *= max(1.0, factor)
        state.vector(STEP, like=delta)[:] = delta
        return delta

    def ahead(self, state: RuleState, like: Vector) -> Vector | None:
        return state.vector(STEP, like=like) / 2 if STEP in state.vectors else None
