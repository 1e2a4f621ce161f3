"""`PersonalModels`, the base of server rules that keep a model for each client, and how to mix these."""

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from .aggregation.vectors import Layout, blocks
from .messages.npy import encoded, viewed
from .reply_reader import CheckedReply, ReplyReader
from .several_models import SeveralModels, Trained


class PersonalModels(SeveralModels):
    """Each client has a model of its own.

    A client that has not answered yet is sent the main model. One whose answer is lost keeps the model it
    has. The server keeps one model for each client that has answered, as such a rule has to, and no copy of
    it. The main model is the mean of those that were trained in a round.
    """

    requires = {**SeveralModels.requires, "clip-update-norm": {0.0}}  # noqa: RUF012

    def model_of(self, partition: int) -> str:
        return f"client-{partition}"

    def begin(self, reading: ReplyReader, main: ArrayRecord, count: int) -> Trained:
        return Personal(self, reading, main, count)

    @abstractmethod
    def take(self, trained: Mapping[str, ArrayRecord], layout: Layout) -> None:
        """Take the models of a round into the rule's state, those that were trained, by name."""


class Personal(Trained):
    """The answers of a round: each is the client's model, and they are summed to the main one."""

    rule: PersonalModels

    def __init__(self, rule: PersonalModels, reading: ReplyReader, main: ArrayRecord, count: int) -> None:
        super().__init__(rule, reading, main, count)
        self.trained: dict[str, ArrayRecord] = {}
        self.weights: dict[str, float] = {}

    def add(self, name: str, position: int, partition: int, read: CheckedReply) -> None:
        assert read.answer
        self.clients[partition] = name
        self.trained[name] = ArrayRecord({n: encoded(array) for n, array in read.answer.arrays.items()})
        self.weights[name] = 1.0 if self.rule.weighs_alike else read.answer.weight

    def stepped(self) -> ArrayRecord:
        assert self.reading.round
        self.rule.take(self.trained, self.reading.round.layout)
        self.rule.rule_state.assigned.update(self.clients)
        return self.mean((model, self.weights[name]) for name, model in self.trained.items())


def mixed(models: Mapping[str, ArrayRecord], names: list[str], weights: NDArray[np.float64]) -> ArrayRecord:
    """Return ``sum_j w_j x_j``, entry by entry in float64; counters are rounded."""
    used = [(models[name], weight) for name, weight in zip(names, weights.tolist(), strict=True) if weight]
    found = {}
    for entry, array in used[0][0].items():
        like = viewed(array)
        total = np.zeros(like.shape)
        for model, weight in used:
            total += weight * viewed(model[entry])
        found[entry] = encoded(np.asarray(total if like.dtype.kind == "f" else np.rint(total), like.dtype))
    return ArrayRecord(found)


def squared_distances(
    models: Mapping[str, ArrayRecord], names: list[str], layout: Layout
) -> NDArray[np.float64]:
    """Return ``norm(x_i - x_j)^2`` over the stepped parameters, float64 (n, n)."""
    from scipy.spatial.distance import pdist, squareform

    total = np.zeros(len(names) * (len(names) - 1) // 2)
    for entry in layout.parameters:
        arrays = [viewed(models[name][entry]).reshape(-1) for name in names]
        for part in blocks(arrays[0].size, len(names)):
            total += pdist(np.stack([array[part] for array in arrays]).astype(np.float64), "sqeuclidean")
    found: NDArray[np.float64] = squareform(total)
    return found
