"""FedPAC: Xu et al. 2023, features are aligned and heads are mixed (arXiv 2306.11867)."""

from collections.abc import Collection
from typing import ClassVar

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp.exception import AggregationError
from numpy.typing import NDArray

from fedbn_flower.core.ground.wire import CLASS_MEANS, FEATURE_SUMS, FEATURES, SHARES, SPREAD

from ...aggregation.fold import Extras, Fold, Round
from ...messages.gate import ReplyRefused, record_of
from ...messages.npy import encoded
from ...messages.ranges import Range
from ...messages.validation import Answer, check_arrays
from ...personal_models import mixed
from ...reply_reader import CheckedReply, ReplyReader
from ...several_models import SeveralModels, Trained
from ..fedproto import LARGEST_FEATURE, FedProto


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
    """The answers of a round, summed for the body; their heads are kept until all are there."""

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
