"""Rules that correct the drift of clients by momentum, dual variables or what the server knows.

SCAFFOLD: Karimireddy et al. 2020, "Stochastic Controlled Averaging" (arXiv 1910.06378).
FedDC: Gao et al. 2022, "Local Drift Decoupling and Correction" (arXiv 2203.11751).
FedDyn: Acar et al. 2021, "Federated Learning Based on Dynamic Regularization" (arXiv 2111.04263).
FedADMM: Gong et al. 2022, "A Robust Federated Deep Learning Framework" (arXiv 2204.03529).
FedSMOO: Sun et al. 2023, "Dynamic Regularized Sharpness Aware Minimization in FL" (arXiv 2305.11584).
FedCM: Xu et al. 2021, "Federated Learning with Client-level Momentum" (arXiv 2106.10874).
FedACG: Kim et al. 2024, "Federated Learning with Accelerated Client Gradient" (arXiv 2201.03172).
Mime, MimeLite: Karimireddy et al. 2020, "Mimicking Centralized Stochastic Algorithms" (arXiv 2008.03606).
"""

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from flwr.app import ArrayRecord

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import (
    AUGMENTED,
    CONTROL,
    GRADIENT,
    LOCAL_LENGTH,
    MOMENTUM,
    PERTURBATION,
    SECOND_MOMENT,
)

from ..aggregation.fold import Extras, Round
from ..aggregation.rule_state import RuleState
from ..aggregation.vectors import Vector
from ..asking import AsksFirst
from ..base import PseudoGradientStrategy
from ..messages.validation import Answer, positive_number


class Scaffold(PseudoGradientStrategy):
    """``x += eta mean_i (x_i - x); c += (1/M) sum_i (c_i+ - c_i)`` (Algorithm 1), over the answers.

    It needs the local objective ``scaffold``. c is sent, and the changes are returned, in a separate
    ArrayRecord ``control``. As in the paper, the means are unweighted. A robust mean replaces both (the mean
    of the changes is multiplied by the number of answers). M is the number of all clients; by default the
    number of connected nodes.
    """

    purpose = "Corrects drift under label skew by control variates (with objective scaffold)."
    helps = ("label-skew",)
    paper = "karimireddy2020scaffold"

    requires = {"objective": {"scaffold"}, "client-optimizer": {"sgd"}, "client-momentum": {0.0}}  # noqa: RUF012
    weighs_alike = True
    extras_like_parameters = True
    reads_extras_anywhere = True

    eta: float = setting(1.0, gt=0, alias="server-lr", description="global step size eta_g")
    num_clients: int | None = setting(None, gt=0, description="M, the number of all clients")

    def extra_records(self, state: RuleState, round: Round) -> dict[str, ArrayRecord]:
        x = round.layout.flatten_parameters(round.sent)
        return {CONTROL: round.layout.parameters_record(state.vector("c", like=x))}

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        return Extras.like_parameters(CONTROL, answer, round)

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        share = round.num_answers / (self.num_clients or round.num_nodes)
        c = state.vector("c", like=delta)
        c += share * round.means[CONTROL]
        return self.eta * delta


class ScaffoldMomentum(Scaffold):
    """``x += eta sum_i p_i (x_i - x)``, and c as in SCAFFOLD: the variant in the code of NIID-Bench.

    Li et al. 2022 (arXiv 2102.02079), table 3. It needs the local objective ``scaffold-momentum``. BatchNorm
    statistics are weighted as the parameters are; the changes of c_i are not weighted.
    """

    purpose = "SCAFFOLD with momentum at the clients, as in NIID-Bench's code."
    helps = ("label-skew",)
    paper = "li2022niidbench"

    requires = {"objective": {"scaffold-momentum"}, "mean": {"weighted"}}  # noqa: RUF012
    weighs_alike = False
    reads_extras_anywhere = True

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        return replace(super().read_extras(answer, round), weight=1.0)


class FedDC(Scaffold):
    """``x = mean_i x_i + h``, ``h += (1/M) sum_i (x_i - x)``, the mean of all drifts; c as in SCAFFOLD.

    It needs the local objective ``feddc``, in which client i has the drift h_i, the sum of its x_i - x. The
    means are unweighted. M is the number of all clients; by default the number of connected nodes. x moves by
    eta times the difference.
    """

    purpose = "Learns each client's drift apart from the model, and takes it off (with objective feddc)."
    helps = ("label-skew",)
    paper = "gao2022feddc"

    requires = {"objective": {"feddc"}, "client-optimizer": {"sgd"}, "client-momentum": {0.0}}  # noqa: RUF012

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        h = state.vector("h", like=delta)
        h += (round.num_answers / (self.num_clients or round.num_nodes)) * delta
        return super().server_step(delta + h, state, round)


class FedDyn(PseudoGradientStrategy):
    """``h -= (alpha/M) sum_i (x_i - x); x = mean_i x_i - h / alpha`` (Algorithm 1), over the answers.

    It needs the local objective ``feddyn`` with the same ``alpha``. As in the paper, the mean is unweighted.
    M is the number of all clients; by default the number of connected nodes.
    """

    purpose = "Corrects drift under label skew by a term at each client (with objective feddyn)."
    helps = ("label-skew",)
    paper = "acar2021feddyn"

    requires = {"objective": {"feddyn"}}  # noqa: RUF012
    weighs_alike = True
    post_processes_mean = True

    alpha: float = setting(
        0.01, gt=0, description="weight of the dynamic regulariser, the same as at the clients"
    )
    num_clients: int | None = setting(None, gt=0, description="M, the number of all clients")

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        h = state.vector("h", like=delta)
        h -= (self.alpha * round.num_answers / (self.num_clients or round.num_nodes)) * delta
        return delta - h / self.alpha


class FedADMM(PseudoGradientStrategy):
    """``x += eta mean_i (u_i+ - u_i)`` with ``u_i = x_i + y_i / rho``, over the answers.

    It needs the local objective ``fedadmm``. A client's change of u_i, which it keeps, is in a separate
    ArrayRecord ``augmented`` of its answer. As in the paper, the mean is unweighted. With eta 1 and all
    clients in every round it is FedDyn with alpha = rho. The authors' code takes x for the client's last x_i,
    so that it sends ``2 (x_i - x)``.
    """

    purpose = "ADMM: each client has prices for its distance to the model (with objective fedadmm)."
    helps = ("label-skew", "unequal-work")
    paper = "gong2022fedadmm"

    requires = {"objective": {"fedadmm"}, "clip-update-norm": {0.0}}  # noqa: RUF012
    weighs_alike = True
    extras_like_parameters = True
    reads_extras_anywhere = True

    eta: float = setting(1.0, gt=0, alias="server-lr", description="server step size eta")

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        return Extras.like_parameters(AUGMENTED, answer, round)

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        return self.eta * round.means[AUGMENTED]


class FedSMOO(PseudoGradientStrategy):
    """``h -= sum_i (x_i - x) / (beta M); x = mean_i x_i - beta h``, and one perturbation s for all clients.

    ``s = rho m / ||m||``, m the mean of what clients send of theirs. It needs the local objective
    ``fedsmoo`` with the same ``beta`` and ``rho``. s is sent, and the clients' part ``mu_i - e`` returned, in
    a separate ArrayRecord ``perturbation``; the authors' code leaves e out there, since its norm is small.
    The means are unweighted. M is the number of all clients; by default the number of connected nodes.
    """

    purpose = "FedDyn's correction of drift with one perturbation for all clients (with objective fedsmoo)."
    helps = ("label-skew", "few-rounds")
    paper = "sun2023fedsmoo"

    requires: ClassVar = {"objective": {"fedsmoo"}}
    weighs_alike = True
    extras_like_parameters = True
    reads_extras_anywhere = True

    rho: float = setting(0.1, ge=0, description="L2 norm of the perturbation", allow_inf_nan=False)
    beta: float = setting(10.0, gt=0, alias="smoo-beta", description="one over the weight of the prox")
    num_clients: int | None = setting(None, gt=0, description="M, the number of all clients")

    def extra_records(self, state: RuleState, round: Round) -> dict[str, ArrayRecord]:
        x = round.layout.flatten_parameters(round.sent)
        return {PERTURBATION: round.layout.parameters_record(state.vector("s", like=x))}

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        return Extras.like_parameters(PERTURBATION, answer, round)

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        h, s = state.vector("h", like=delta), state.vector("s", like=delta)
        h -= (round.num_answers / (self.beta * (self.num_clients or round.num_nodes))) * delta
        mean = round.means[PERTURBATION]
        length = float(np.linalg.norm(mean))
        s[:] = mean * (self.rho / length) if length else 0
        return delta - self.beta * h


class FedCM(PseudoGradientStrategy):
    """``d = mean_i (x - x_i) / (lr K_i); x -= eta d``, over the answers.

    It needs the local objective ``fedcm``, whose steps are ``a g + (1 - a) d`` with the d of the last round,
    0 in the first. d is sent in a separate ArrayRecord ``momentum``. As in the paper, the mean is unweighted.
    With eta 0, eta is the mean of the lr K_i, which is the authors' step: x becomes the mean of the x_i where
    all K_i are equal.
    """

    purpose = "Gives every local step the global direction of the last round (with objective fedcm)."
    helps = ("label-skew", "few-rounds")
    paper = "xu2021fedcm"

    requires = {  # noqa: RUF012
        "objective": {"fedcm"},
        "client-optimizer": {"sgd"},
        "client-momentum": {0.0},
        "dp": {"none"},  # clients would report the length of their steps
    }
    weighs_alike = True
    extras_like_parameters = True
    reads_extras_anywhere = True

    eta: float = setting(
        0.0, ge=0, alias="server-lr", description="global step size; 0 for the mean of lr K_i"
    )

    def extra_records(self, state: RuleState, round: Round) -> dict[str, ArrayRecord]:
        x = round.layout.flatten_parameters(round.sent)
        return {MOMENTUM: round.layout.parameters_record(state.vector("d", like=x))}

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        length = positive_number(answer.metrics, LOCAL_LENGTH)
        return Extras(1.0 / length, {LOCAL_LENGTH: np.array([length])})

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        state.vector("d", like=delta)[:] = -delta
        return (self.eta or float(round.means[LOCAL_LENGTH][0])) * delta


class FedACG(PseudoGradientStrategy):
    """``m = lambda m + D; x += m``; clients get ``x + lambda m``, and D is measured from that.

    It needs the local objective ``fedacg``. x is evaluated and kept, not the model that clients get next.
    """

    purpose = "Lets clients begin where momentum leads, and holds them there (with objective fedacg)."
    helps = ("label-skew", "few-rounds")
    paper = "kim2024fedacg"
    post_processes_mean = True

    requires = {"objective": {"fedacg"}, "compress-down": {"none"}}  # noqa: RUF012

    momentum: float = setting(
        0.85, ge=0, lt=1, alias="acg-lambda", description="lambda, the momentum of the server"
    )

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        """Return the step of the model that is sent: x + lambda m becomes (x + lambda m + D) + lambda m."""
        m = state.vector(MOMENTUM, like=delta)
        m *= self.momentum
        m += delta
        return delta + self.momentum * m

    def ahead(self, state: RuleState, like: Vector) -> Vector | None:
        return self.momentum * state.vector(MOMENTUM, like=like) if MOMENTUM in state.vectors else None


USED = {"momentum": (MOMENTUM,), "adam": (MOMENTUM, SECOND_MOMENT), "adagrad": (SECOND_MOMENT,)}
"""The state of each optimiser: the names of its vectors, and of the records in which they are sent."""


class MimeLite(PseudoGradientStrategy):
    """``x += eta mean_i (x_i - x)``; ``m, v`` follow the mean of the clients' gradients at x.

    It needs the local objective ``mimelite``, whose steps are those of the server's optimiser from the fixed
    m and v that it is sent. With momentum and Adam ``m = b1 m + (1 - b1) g``, with Adam
    ``v = b2 v + (1 - b2) g^2``, with Adagrad ``v += g^2``, g the mean of the gradients of all of each
    client's examples, in a separate ArrayRecord ``gradient`` of its answer. As in the paper, means are
    unweighted.
    """

    purpose = "Has clients step by the server's momentum, Adam or Adagrad (with objective mimelite)."
    helps = ("label-skew", "few-rounds")
    paper = "karimireddy2020mime"

    requires = {"objective": {"mimelite"}, "client-optimizer": {"sgd"}, "client-momentum": {0.0}}  # noqa: RUF012
    weighs_alike = True
    extras_like_parameters = True
    reads_extras_anywhere = True

    eta: float = setting(1.0, gt=0, alias="server-lr", description="server learning rate")
    optimizer: Literal["momentum", "adam", "adagrad"] = setting(
        "momentum", alias="mime-optimizer", description="optimiser whose state is the server's"
    )
    beta_1: float = setting(0.9, ge=0, lt=1, alias="mime-beta-1", description="decay of m")
    beta_2: float = setting(0.99, ge=0, lt=1, alias="mime-beta-2", description="decay of v, with adam")

    def extra_records(self, state: RuleState, round: Round) -> dict[str, ArrayRecord]:
        x = round.layout.flatten_parameters(round.sent)
        return {
            name: round.layout.parameters_record(state.vector(name, like=x)) for name in USED[self.optimizer]
        }

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        return Extras.like_parameters(GRADIENT, answer, round)

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        self.follow(round.means[GRADIENT], state)
        return self.eta * delta

    def follow(self, g: Vector, state: RuleState) -> None:
        """Update the optimiser's state by the mean of the clients' gradients at x."""
        if MOMENTUM in USED[self.optimizer]:
            m = state.vector(MOMENTUM, like=g)
            m *= self.beta_1
            m += (1 - self.beta_1) * g
        if SECOND_MOMENT in USED[self.optimizer]:
            v, decays = state.vector(SECOND_MOMENT, like=g), self.optimizer == "adam"
            v *= self.beta_2 if decays else 1.0
            v += (1 - self.beta_2 if decays else 1.0) * np.square(g)


class Mime(AsksFirst, MimeLite):
    """``x += eta mean_i (x_i - x)``; ``m, v`` follow c, the mean of the clients' gradients at x.

    It needs the local objective ``mime``. The round's clients are asked for their gradients at x first; c
    goes to them with the model, for SVRG's correction of each step. m and v are those of `MimeLite`, with
    ``g = c``: c is the mean over all that answered the question, including those whose model is lost.
    """

    purpose = "MimeLite with each batch's gradient corrected by all clients' gradient (with objective mime)."
    helps = ("label-skew", "few-rounds")
    paper = "karimireddy2020mime"

    requires = {**MimeLite.requires, **AsksFirst.requires, "objective": {"mime"}}  # noqa: RUF012
    first_question = GRADIENT

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        return Extras()

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        self.follow(self.first_mean, state)
        return self.eta * delta
