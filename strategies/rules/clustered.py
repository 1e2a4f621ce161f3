"""Several models, each for a group of clients.

IFCA: Ghosh et al. 2020, "An Efficient Framework for Clustered Federated Learning" (arXiv 2006.04088).
CFL: Sattler et al. 2020, "Clustered Federated Learning" (arXiv 1910.01991).
"""

import math
from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.exception import AggregationError
from numpy.typing import NDArray

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import CANDIDATE, CHOSEN, MODEL

from ..aggregation.fold import Extras, Round
from ..aggregation.means import Summand
from ..aggregation.rule_state import RuleState
from ..aggregation.vectors import Vector, squared_norm
from ..aggregation.whole_answers import WholeAnswers
from ..messages.gate import ReplyRefused, refusing, text_of
from ..messages.npy import encoded, viewed
from ..messages.replies import PhaseReport
from ..messages.validation import LOGGER, Answer
from ..reply_reader import CheckedReply, ReplyReader
from ..several_models import Clusters, Trained

LONGEST_NAME = 100


class IFCA(Clusters):
    """``x_k += eta sum_i p_i (x_i - x_k)`` over the clients that chose model k.

    Clients get all k models, and each trains the one with the lowest mean loss on its own training examples.
    Before an evaluation it chooses again. The k models are initialised with different seeds, the first with
    the run's. A model that no client chose does not change.

    Answers are weighted as the run weights clients; in the paper equally. Departure from the paper's
    experiments: these are repeated from several random starts, on which the result depends.
    """

    purpose = "Keeps several models; each client trains the one that fits its data best."
    helps = ("label-skew", "feature-shift")
    paper = "ghosh2020ifca"

    clients_choose: ClassVar[bool] = True

    eta: float = setting(1.0, gt=0, alias="server-lr", description="server learning rate")
    clusters: int = setting(2, ge=2, description="k, the number of models")

    @property
    def names(self) -> list[str]:
        """The names of the models."""
        return [f"cluster-{k}" for k in range(self.clusters)]

    def model_of(self, partition: int) -> str:
        return self.rule_state.assigned.get(partition, self.names[0])

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        models = self.rule_state.models
        for k, name in enumerate(self.names):
            if name not in models:
                models[name] = self._first(k, arrays) if k else arrays
        return super().configure_train(server_round, arrays, config, grid)

    def _first(self, k: int, arrays: ArrayRecord) -> ArrayRecord:
        if self.first_model is None:
            raise AggregationError("IFCA needs the weights of its models: assign first_model before the run")
        entries = self.first_model(k)
        return ArrayRecord({name: encoded(entries[name]) for name in arrays})

    def group_of(self, partition: int, phase: str) -> str:
        return ""

    def records_of(self, group: str, main: ArrayRecord, phase: str) -> dict[str, ArrayRecord]:
        return {f"{CANDIDATE}{name}": self.entries(name, main) for name in self.names}

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        self._chosen(answer.content)
        return Extras()

    def answered(self, partition: int, answer: Answer) -> str:
        return self._chosen(answer.content)

    def _chosen(self, content: RecordDict) -> str:
        """Return the name of the model that a client chose."""
        name = text_of(content, CHOSEN, MODEL, LONGEST_NAME)
        if name not in self.names:
            raise ReplyRefused(f"{CHOSEN}: {name!r} is none of the {self.clusters} models")
        return name

    def _read_evaluate_(self, content: RecordDict) -> tuple[RecordDict, MetricRecord, dict[str, NDArray]]:
        with refusing():
            self._chosen(content)
        return super()._read_evaluate_(content)

    def _note_evaluation_(self, partition: int, content: RecordDict, report: PhaseReport) -> None:
        report.models[partition] = self.rule_state.assigned[partition] = self._chosen(content)

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        return self.eta * delta


ROOT = "cluster"
LEAST = 3
"""Answers of a cluster that may be split, as in the authors' code."""


class CFL(Clusters):
    """FedAvg in each cluster; a cluster whose updates disagree is split in two by their cosines.

    It is split when ``norm(sum_i p_i D_i) < eps_1`` and ``max_i norm(D_i) > eps_2``: its model is nearly
    stationary, and its clients' are not. The halves are those with the least similarity between them,
    ``argmin max_{i in c_1, j in c_2} cos(D_i, D_j)``, and they are split only if
    ``sqrt((1 - that) / 2) > gamma``. Each half goes on with the mean of its own updates. The authors' code
    splits by complete linkage, which need not find these halves.

    A split cluster stays as a node of a tree, with its model and the mean update of each half. A client that
    had no part in the split, since it is new or its answer was lost, trains that model once more and goes to
    the half to whose mean update its own has the greater cosine. Departure from the paper, which compares it
    with every update of the halves: that would keep a model for each client.
    """

    purpose = "Splits clients into clusters where their updates disagree."
    helps = ("label-skew", "feature-shift")
    paper = "sattler2020cfl"

    eta: float = setting(1.0, gt=0, alias="server-lr", description="server learning rate")
    eps_1: float = setting(
        0.4, ge=0, alias="cfl-eps-1", description="split a cluster whose mean update is shorter"
    )
    eps_2: float = setting(
        1.6, ge=0, alias="cfl-eps-2", description="split a cluster whose longest update is longer"
    )
    gamma: float = setting(
        0.0, ge=0, le=1, alias="cfl-gamma", description="bound on what noise alone could separate; 0 for none"
    )
    first_split: int = setting(
        21, ge=1, alias="cfl-from-round", description="the first round in which a cluster may be split"
    )

    def model_of(self, partition: int) -> str:
        return self.rule_state.assigned.get(partition, ROOT)

    def begin(self, reading: ReplyReader, main: ArrayRecord, count: int) -> Trained:
        return Splitting(self, reading, main, count)

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        return self.eta * delta

    def halves(self, products: NDArray[np.float64], weights: Sequence[float]) -> NDArray[np.int64] | None:
        """Return the half, 0 or 1, of each of a cluster's answers, or None if it must not be split.

        Parameters
        ----------
        products : NDArray
            float64 (n, n), the products of their updates.
        weights : Sequence[float]
            Their weights.
        """
        p, lengths = np.array(weights) / sum(weights), np.sqrt(np.diag(products))
        mean = math.sqrt(max(0.0, float(p @ products @ p)))
        if len(p) < LEAST or mean >= self.eps_1 or lengths.max() <= self.eps_2:
            return None
        scale = np.outer(lengths, lengths)
        cosines = products / np.where(scale > 0, scale, 1)
        half = bipartition(cosines)
        across = float(cosines[np.ix_(half == 0, half == 1)].max())
        if math.sqrt(max(0.0, 1 - across) / 2) <= self.gamma:
            return None
        text = "a cluster is split into %d and %d clients: norms %.3g (mean), %.3g (longest), cosine %.3g"
        LOGGER.info(text, (half == 0).sum(), (half == 1).sum(), mean, lengths.max(), across)
        return half


def bipartition(cosines: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the halves with the least ``max cos`` between them; 0 is that of the first.

    Single linkage merges by the greatest similarity until two are left, which minimises that between them.
    """
    from scipy.cluster.hierarchy import cut_tree, linkage
    from scipy.spatial.distance import squareform

    distances = squareform(1 - cosines, checks=False)
    half: NDArray[np.int64] = cut_tree(linkage(distances, "single"), 2)[:, 0].astype(np.int64)
    return half if half[0] == 0 else 1 - half


class Splitting(Trained):
    """Keeps a round's answers until it is known which clusters are split."""

    rule: CFL

    def __init__(self, rule: CFL, reading: ReplyReader, main: ArrayRecord, count: int) -> None:
        super().__init__(rule, reading, main, count)
        self.kept: dict[str, list[tuple[int, int, CheckedReply]]] = {}

    def add(self, name: str, position: int, partition: int, read: CheckedReply) -> None:
        halves = [f"{name}-{half}" for half in (0, 1)]
        if halves[0] not in self.rule.rule_state.models:
            self.clients[partition] = name
            self.kept.setdefault(name, []).append((position, partition, read))
            return
        whole = self._differences(name, [read])
        update = whole.combined(np.ones(1))
        towards = [self.rule.rule_state.vectors[direction(half)] for half in halves]
        cosines = [float(update @ one) / max(np.sqrt(squared_norm(one)), 1e-30) for one in towards]
        self.clients[partition] = halves[int(np.argmax(cosines))]

    def stepped(self) -> ArrayRecord:
        for name, answers in sorted(self.kept.items()):
            whole = self._differences(name, [read for *_, read in answers])
            may_split = self.reading.server_round >= self.rule.first_split
            half = self.rule.halves(whole.products(), whole.weights) if may_split else None
            if half is not None:
                self._split(name, whole, half)
            for number, (position, partition, read) in enumerate(answers):
                group = name if half is None else f"{name}-{half[number]}"
                self.clients[partition] = group
                self.sum(group, position, partition, read)
        return super().stepped()

    def _split(self, name: str, whole: WholeAnswers, half: NDArray[np.int64]) -> None:
        """Create the models of both halves, and store their mean updates."""
        state, model = self.rule.rule_state, self.rule.entries(name, self.main)
        state.models.setdefault(name, model)
        for number in (0, 1):
            child, members = f"{name}-{number}", half == number
            state.models[child] = model
            state.vectors[direction(child)] = whole.combined(members / members.sum())

    def _differences(self, name: str, reads: Sequence[CheckedReply]) -> WholeAnswers:
        """Return the differences of answers to the models that their clients were sent."""
        assert self.reading.round
        layout, sent = self.reading.round.layout, self.rule.entries(name, self.main)
        whole = WholeAnswers([viewed(sent[n]).reshape(-1) for n in layout.parameters], layout.dtypes[0])
        for read in reads:
            assert read.answer
            weight = 1.0 if self.rule.weighs_alike else read.answer.weight
            whole.add(Summand([read.answer.arrays[n] for n in layout.parameters], weight))
        return whole


def direction(name: str) -> str:
    """Return the name in the rule's state of the mean update of a cluster's clients when it was split off."""
    return f"direction/{name}"
