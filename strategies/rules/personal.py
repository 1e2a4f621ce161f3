"""A model, or a head, for each client: a mixture of all clients'.

FedAMP: Huang et al. 2021, "Personalized Cross-Silo Federated Learning on Non-IID Data" (2007.03797).
FedAP: Lu et al. 2022, "Personalized Federated Learning with Adaptive Batchnorm" (arXiv 2112.00734).
FedPAC: Xu et al. 2023, features are aligned and heads are mixed (arXiv 2306.11867).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

import numpy as np
from flwr.app import ArrayRecord, MessageType
from flwr.serverapp.exception import AggregationError
from numpy.typing import NDArray

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import CLASS_MEANS, FEATURE_SUMS, FEATURES, SHARES, SPREAD

from ..aggregation.fold import Extras, Fold, Round
from ..aggregation.vectors import Layout
from ..messages.gate import ReplyRefused, record_of
from ..messages.npy import encoded, viewed
from ..messages.validation import Answer, Range, check_arrays
from ..reply_reader import CheckedReply, ReplyReader
from ..several_models import PersonalModels, SeveralModels, Trained, mixed, squared_distances
from .by_class import LARGEST_FEATURE, FedProto

MIXTURE = "mixture"
"""The matrix xi in the rule's state, its rows and columns by the models' names in order."""


class FedAMP(PersonalModels):
    """Client i is sent ``u_i = xi_ii w_i + sum_{j != i} xi_ij w_j``, ``xi_ij = alpha A'(norm(w_i - w_j)^2)``.

    w_j is what client j has trained last, and ``A(x) = 1 - e^(-x / sigma)``, so that similar models attract
    each other; ``xi_ii = 1 - sum_{j != i} xi_ij``. The client minimises
    ``f(w) + lambda / (2 alpha) norm(w - u_i)^2``: it needs the objective ``fedprox``, whose ``mu`` is lambda
    over alpha. It evaluates its w_i. Norms are over the stepped parameters; statistics are mixed with the
    same weights.

    The paper takes alpha so small that xi_ii >= 0. Here the others' weights are scaled down to a sum of 1
    where they are above it. Clients begin at the u_i that they receive, on which the minimum does not depend.
    """

    purpose = "Gives each client a mixture of the models that are like its own (with objective fedprox)."
    helps = ("personal-models",)
    paper = "huang2021fedamp"

    requires = {**PersonalModels.requires, "objective": {"fedprox"}}  # noqa: RUF012

    alpha: float = setting(1.0, gt=0, alias="fedamp-alpha", description="step size of the attraction")
    sigma: float = setting(
        1.0, gt=0, alias="fedamp-sigma", description="squared distance at which models attract less by e"
    )

    def take(self, trained: Mapping[str, ArrayRecord], layout: Layout) -> None:
        state = self.rule_state
        state.models.update(trained)
        state.vectors[MIXTURE] = self.mixture(squared_distances(state.models, sorted(state.models), layout))

    def records_of(self, group: str, main: ArrayRecord, phase: str) -> dict[str, ArrayRecord]:
        models = self.rule_state.models
        if phase != MessageType.TRAIN or group not in models:
            return super().records_of(group, main, phase)
        names = sorted(models)
        row = self.rule_state.vectors[MIXTURE][names.index(group)]
        return {self.arrayrecord_key: mixed(models, names, row)}

    def mixture(self, squared: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return xi, float64 (n, n), from the models' squared distances."""
        others = self.alpha / self.sigma * np.exp(-squared / self.sigma)
        np.fill_diagonal(others, 0)
        others /= np.maximum(1, others.sum(1, keepdims=True))
        return others + np.diag(np.maximum(0, 1 - others.sum(1)))


MEAN, VARIANCE = ".running_mean", ".running_var"


class FedAP(PersonalModels):
    """Client i has ``sum_j w_ij x_j``, and its own BatchNorm; w_ij depends on the similarity of statistics.

    ``w_ii = lambda``, and ``w_ij = (1 - lambda) (1 / d_ij) / sum_{k != i} 1 / d_ik``, where d_ij sums over
    BatchNorm layers the 2-Wasserstein distance ``sqrt(norm(mu_i - mu_j)^2 + norm(sigma_i - sigma_j)^2)`` of
    normal distributions with their statistics, as in the authors' code. x_j is what client j trained in this
    round; of a client that did not answer, its model, which stays as it is.

    Departure from the paper, which measures the statistics of the layers' inputs once, by a pretrained model
    on each client's data: here they are the running statistics that clients send with each answer.
    """

    purpose = "Gives each client a mixture weighted by the likeness of BatchNorm statistics."
    helps = ("personal-models", "feature-shift")
    paper = "lu2022fedap"

    own: float = setting(0.5, ge=0, le=1, alias="fedap-lambda", description="weight of a client's own model")

    def take(self, trained: Mapping[str, ArrayRecord], layout: Layout) -> None:
        models = {**self.rule_state.models, **trained}
        names = sorted(models)
        weights = self.weights([models[name] for name in names])
        norms = {entry for entry in models[names[0]] if entry.startswith(tuple(layers(models[names[0]])))}
        self.rule_state.models |= {
            name: ArrayRecord(
                {
                    entry: models[name][entry] if entry in norms else array
                    for entry, array in mixed(models, names, weights[names.index(name)]).items()
                }
            )
            for name in trained
        }

    def weights(self, models: Sequence[ArrayRecord]) -> NDArray[np.float64]:
        """Return w, float64 (n, n); of a single client it is 1."""
        if len(models) == 1:
            return np.ones((1, 1))
        distances = sum(_distances(models, layer) for layer in layers(models[0]))
        near = 1 / np.maximum(distances, np.finfo(np.float64).tiny ** 0.5)
        np.fill_diagonal(near, 0)
        others: NDArray[np.float64] = (1 - self.own) * near / near.sum(1, keepdims=True)
        return others + self.own * np.eye(len(models))


def layers(entries: Mapping[str, object]) -> list[str]:
    """Return the name prefix of each BatchNorm layer's entries."""
    return [f"{name.removesuffix(MEAN)}." for name in entries if name.endswith(MEAN)]


def _distances(models: Sequence[ArrayRecord], layer: str) -> NDArray[np.float64]:
    """Return the distances of one layer's statistics, float64 (n, n)."""
    from scipy.spatial.distance import pdist, squareform

    prefix = layer.removesuffix(".")
    rows = [
        np.concatenate([viewed(m[f"{prefix}{MEAN}"]), np.sqrt(viewed(m[f"{prefix}{VARIANCE}"]))])
        for m in models
    ]
    found: NDArray[np.float64] = squareform(pdist(np.array(rows, np.float64)))
    return found


class FedPAC(SeveralModels, FedProto):
    """One body for all, ``x += eta D``; client i has the head ``sum_j a_ij h_j`` of all clients' heads h_j.

    ``a_i = argmin sum_j a_ij^2 V_j + norm(M_i - sum_j a_ij M_j)^2`` over non-negative weights with the sum 1.
    M_j are the client's mean features of each class times the class's share of its examples, and V_j is their
    variance over its number of examples, both by the body that it received. Prototypes are aggregated as by
    ``fedproto``. It needs the client and the objective ``fedpac``.

    Only clients that answered in a round get a new head, of these clients' heads. A client without one has
    the mean of all, as the main model has. The authors' code drops weights below 0.001; here they stay.
    """

    purpose = "Shares the body; each client's head is a mixture of those that fit it."
    helps = ("personal-models", "label-skew")
    paper = "xu2023fedpac"

    requires: ClassVar[dict[str, Collection[object]]] = {
        **SeveralModels.requires,
        "objective": {"fedpac"},
        "client": {"fedpac"},
        "clip-update-norm": {0.0},
    }
    goes_without_model = False

    head: Collection[str] = ()
    """The names of the head's entries. Assign them before the first round."""

    def model_of(self, partition: int) -> str:
        return f"client-{partition}"

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        extras = super().read_extras(answer, round)
        self.features_of(answer, extras)
        return extras

    def features_of(self, answer: Answer, extras: Extras) -> tuple[NDArray[np.float64], float]:
        """Return a client's M, flat, of the classes and features of its prototypes, and its V."""
        shares, sums = extras.vectors[SHARES], extras.vectors[FEATURE_SUMS]
        expected = {CLASS_MEANS: np.zeros((len(shares), sums.size // len(shares))), SPREAD: np.zeros(())}
        ranges = {SPREAD: Range(0, LARGEST_FEATURE**2)}
        arrays = check_arrays(record_of(answer.content, FEATURES, ArrayRecord), expected, ranges)
        if np.any(np.abs(arrays[CLASS_MEANS]) > LARGEST_FEATURE * shares[:, None]):
            raise ReplyRefused(f"{FEATURES}: a mean feature above {LARGEST_FEATURE:.0e}")
        return arrays[CLASS_MEANS].ravel(), float(arrays[SPREAD])

    def begin(self, reading: ReplyReader, main: ArrayRecord, count: int) -> Trained:
        if not self.head:
            raise AggregationError("FedPAC needs the names of the head's entries: assign head before the run")
        return Heads(self, reading, main, count)


class Heads(Trained):
    """Sums a round's answers for the body; keeps their heads until all have arrived."""

    rule: FedPAC

    def __init__(self, rule: FedPAC, reading: ReplyReader, main: ArrayRecord, count: int) -> None:
        super().__init__(rule, reading, main, count)
        body = ReplyReader(reading.how, reading.server_round, reading.phase)
        self.sums = {"": (body, Fold(body.new_partial_sum, count))}
        self.heads: dict[str, ArrayRecord] = {}
        self.features: list[tuple[NDArray[np.float64], float]] = []

    def add(self, name: str, position: int, partition: int, read: CheckedReply) -> None:
        assert read.answer
        self.clients[partition] = name
        arrays = read.answer.arrays
        self.heads[name] = ArrayRecord({n: encoded(arrays[n]) for n in self.main if n in self.rule.head})
        self.features.append(self.rule.features_of(read.answer, read.extras))
        self.sum("", position, partition, read)

    def stepped(self) -> ArrayRecord:
        state = self.rule.rule_state
        names = list(self.heads)
        means, spreads = map(np.array, zip(*self.features, strict=True))
        weights = head_weights(means, spreads)
        main = super().stepped()
        del state.models[""]
        for name, row in zip(names, weights, strict=True):
            state.models[name] = mixed(self.heads, names, row)
        return main


def head_weights(means: NDArray[np.float64], spreads: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a, float64 (n, n), from M, (n, ...) flat, and V, (n,).

    The objective is ``norm(L a_i)^2``, and ``norm(L x)^2 + (sum(x) - 1)^2`` over x >= 0 is least at a
    multiple of the a_i: a quadratic programme over the simplex is one of non-negative least squares.
    """
    from scipy.optimize import nnls

    n, rows = len(means), []
    for i in range(n):
        from_i = means[i] - means
        values, vectors = np.linalg.eigh(from_i @ from_i.T + np.diag(spreads))
        root = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
        scale = max(float(root.max(initial=0)), float(-root.min(initial=0)), 1e-12)
        found, _ = nnls(np.vstack([root / scale, np.ones(n)]), np.append(np.zeros(n), 1.0))
        rows.append(found / found.sum())
    return np.array(rows)
