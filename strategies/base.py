"""The base of every server rule: sampling, checked replies, the streaming mean, the pseudo-gradient."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from .checks import (
    LOGGER,
    MAX_WEIGHT,
    TrainReply,
    check_metrics,
    check_train_reply,
    require,
    weighted_metrics,
)
from .nodes import NodeDirectory, sample
from .replies import PhaseReport, Replies
from .robust import MEANS, Mean, MeanOfDifferences, clipping_factor, mean_of_differences
from .vectors import Layout, Vector

MetricsAggregation = Callable[[list[RecordDict], str], MetricRecord]


@dataclass(eq=False)
class PseudoGradientStrategy(Strategy):
    """Base of the server rules: ``x += step(D)`` with ``D = sum_i p_i (x_i - x)``.

    A rule implements `step` and nothing else. Trainable parameters get the step; everything else that is
    shared (BatchNorm statistics, counters) becomes its weighted mean. Replies are checked, and reduced in
    partition order whatever order they arrive in, so the result does not depend on timing. An answer that
    cannot be used is dropped, counted in `report`, and its reason logged once; if fewer than ``min_replies``
    are left, the model and the rule's state stay as they were.

    The weighted mean is a running sum of one model's size. The robust means (`robust.TrimmedMean`) keep every
    client's difference until the round's end, and count all clients alike.

    Parameters
    ----------
    fraction_train, fraction_evaluate : float
        Share of the connected nodes that trains or evaluates in a round, in [0, 1]; 0 skips the phase.
    min_train_nodes, min_evaluate_nodes, min_available_nodes : int
        Lower bounds on the nodes in a phase, and on the nodes connected before it starts.
    weighted_by_key : str, optional
        The metric that weighs a client's answer; None weighs all clients alike.
    arrayrecord_key, configrecord_key : str
        Names of the two records in a message.
    train_metrics_aggr_fn, evaluate_metrics_aggr_fn : callable, optional
        ``(list[RecordDict], weighted_by_key) -> MetricRecord``; by default the weighted mean.
    trainable : Collection[str], optional
        Names of the entries to step; by default every floating entry that does not carry the name of a
        BatchNorm statistic (``running_mean``, ``running_var``, ``num_batches_tracked``).
    seed : int
        Decides, with the round, which nodes are sampled.
    node_timeout, query_timeout : float
        Seconds to wait for enough nodes, and for a new node to tell its partition id.
    min_replies : int
        Usable answers that an update takes, >= 1; so many nodes at least are waited for, and sampled.
    max_weight : float
        An answer that weighs more is refused; in (0, 2^53]. ``num-examples`` must be a whole number, too.
    clip_update_norm : float, optional
        Bound on the L2 norm of ``x_i - x`` over the trainable parameters, > 0; a longer one is scaled down to
        it. Statistics, and what a rule takes from an answer beside the model, are not scaled.
    mean : {"weighted", "median", "trimmed"}
        What the pseudo-gradient, and every other mean over the clients' arrays, is: the weighted mean, or the
        coordinate-wise median or trimmed mean.
    trim : float
        Share of the values that the trimmed mean leaves out at each end, in [0, 0.5).

    Raises
    ------
    ValueError
        For an argument out of its range.
    """

    partner: ClassVar[str | None] = None
    """The local objective that this rule needs, if it is half of a pair."""
    uniform: ClassVar[bool] = False
    """Whether the rule takes the plain mean of the models, whatever weighs the metrics."""

    fraction_train: float = 1.0
    fraction_evaluate: float = 1.0
    min_train_nodes: int = 2
    min_evaluate_nodes: int = 2
    min_available_nodes: int = 2
    weighted_by_key: str | None = "num-examples"
    arrayrecord_key: str = "arrays"
    configrecord_key: str = "config"
    train_metrics_aggr_fn: MetricsAggregation | None = None
    evaluate_metrics_aggr_fn: MetricsAggregation | None = None
    _: KW_ONLY
    trainable: Collection[str] | None = None
    seed: int = 0
    node_timeout: float = 600.0
    query_timeout: float = 120.0
    min_replies: int = 1
    max_weight: float = MAX_WEIGHT
    clip_update_norm: float | None = None
    mean: Mean = "weighted"
    trim: float = 0.1

    def __post_init__(self) -> None:
        for name in ("fraction_train", "fraction_evaluate"):
            fraction = getattr(self, name)
            require(0 <= fraction <= 1, name, fraction, "a number in [0, 1]")
        for name in ("min_train_nodes", "min_evaluate_nodes", "min_available_nodes", "seed"):
            number = getattr(self, name)
            require(number >= 0, name, number, "a whole number >= 0")
        require(self.min_replies >= 1, "min_replies", self.min_replies, "a whole number >= 1")
        require(0 < self.max_weight <= MAX_WEIGHT, "max_weight", self.max_weight, "a number in (0, 2^53]")
        bound = self.clip_update_norm
        require(bound is None or bound > 0, "clip_update_norm", bound, "a number > 0, or None")
        require(self.mean in MEANS, "mean", self.mean, f"one of {', '.join(MEANS)}")
        require(0 <= self.trim < 0.5, "trim", self.trim, "a number in [0, 0.5)")
        self.updates = 0
        """How often the model was updated: t of the next step is ``updates + 1``."""
        self.state: dict[str, Vector] = {}
        """The rule's own vectors (moments, momentum) by name; with `updates`, all there is to resume."""
        self.known_clients = 0
        """How many nodes were connected when the last phase began."""
        self.num_replies = 0
        """How many answers the current pseudo-gradient is the mean of."""
        self.nodes = NodeDirectory(self.node_timeout, self.query_timeout)
        """The nodes met so far, in partition order."""
        self._replies = Replies(self.nodes)
        self._current: dict[str, NDArray] = {}

    @property
    def report(self) -> PhaseReport:
        """What came back in the current phase, or the last."""
        return self._replies.report

    @abstractmethod
    def step(self, delta: Vector, t: int) -> Vector:
        """What is added to the parameters at the t-th update, t = 1, 2, ...

        ``delta`` is the pseudo-gradient over all trainable parameters, one flat float vector; the same
        shape and dtype are to be returned, in ``delta`` itself if that is handy. State goes through `vector`.
        """

    def records(self, layout: Layout) -> dict[str, ArrayRecord]:
        """What goes to the training clients beside the model."""
        return {}

    def begin(self, layout: Layout) -> None:
        """Called before the first answer of a round."""

    def absorb(self, content: RecordDict, answer: TrainReply, layout: Layout) -> float:
        """Take from an answer what the rule needs beside the model; the factor on its difference.

        Called once for each answer, in partition order; may raise `ReplyRefused` to drop it.
        """
        return 1.0

    def vector(self, name: str, *, like: Vector, fill: float = 0.0) -> Vector:
        """The rule's state vector of that name, to be updated in place; made on first use."""
        if name not in self.state:
            self.state[name] = np.full_like(like, fill)
        return self.state[name]

    def mean_of(self, reference: Vector) -> MeanOfDifferences:
        """A new mean, of the kind chosen, of the clients' differences to a flat vector."""
        return mean_of_differences(self.mean, self.trim, reference)

    def summary(self) -> None:
        """Log the settings."""
        settings = {name: getattr(self, name) for name in self.__dataclass_fields__}
        LOGGER.info("\t└──> %s: %s", type(self).__name__, settings)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages that carry the model to the nodes that train in this round."""
        self._current = {name: array.numpy() for name, array in arrays.items()}
        return self._configure(MessageType.TRAIN, server_round, arrays, config, grid)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages that carry the model to the nodes that evaluate it in this round."""
        return self._configure(MessageType.EVALUATE, server_round, arrays, config, grid)

    def _configure(
        self, phase: str, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        training = phase == MessageType.TRAIN
        fraction = self.fraction_train if training else self.fraction_evaluate
        wanted = ("min_replies", "min_train_nodes") if training else ("min_evaluate_nodes",)
        minimum = max(getattr(self, name) for name in wanted)
        title = f"round {server_round}, {phase}"
        sent: list[Message] = []
        if fraction > 0:
            reason = max((*wanted, "min_available_nodes"), key=lambda name: getattr(self, name))
            at_least = max(1, minimum, self.min_available_nodes)
            nodes = self.nodes.connected(grid, at_least, f"{title}: {reason}")
            chosen = sample(nodes, fraction, minimum, (self.seed, server_round, int(training)))
            config["server-round"] = server_round
            content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
            if training:
                for name, extra in self.records(Layout(self._current, self.trainable)).items():
                    content[name] = extra
            self.known_clients = len(nodes)
            sent = [Message(content, node, phase) for node in chosen]
        self._replies.expect(title, sent)
        return sent

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next model and the mean train metrics; None for both when too few answers could be used."""
        layout = Layout(self._current, self.trainable)
        parameters, statistics = layout.flatten(self._current)
        means = self.mean_of(parameters), self.mean_of(statistics)
        contents: list[RecordDict] = []
        self.begin(layout)
        read = partial(self._read_train, layout=layout)
        for partition, (answer, factor) in self._replies.usable(replies, read):
            weight = 1.0 if self.uniform else answer.weight
            means[0].add((answer.arrays[name] for name in layout.parameters), weight, factor)
            means[1].add((answer.arrays[name] for name in layout.statistics), weight)
            self.report.metrics[partition] = answer.metrics
            contents.append(RecordDict({"metrics": answer.metrics}))
        if len(contents) < self.min_replies:
            self._replies.too_few(len(contents), self.min_replies)
            return None, None
        self.updates += 1
        self.num_replies = len(contents)
        parameters += self.step(means[0].mean(), self.updates)
        statistics += means[1].mean()
        return (
            layout.unflatten(parameters, statistics),
            self._mean_metrics(self.train_metrics_aggr_fn, contents),
        )

    def _read_train(self, content: RecordDict, layout: Layout) -> tuple[TrainReply, float]:
        answer = check_train_reply(
            content, self._current, self.arrayrecord_key, self.weighted_by_key, self.max_weight
        )
        factor = self.absorb(content, answer, layout)
        if (bound := self.clip_update_norm) is not None:
            factor *= clipping_factor(answer.arrays, self._current, layout.parameters, bound)
        return answer, factor

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The mean evaluate metrics, or None when no answer could be used."""
        contents: list[RecordDict] = []
        for partition, (content, metrics) in self._replies.usable(replies, self._read_evaluate):
            self.report.metrics[partition] = metrics
            contents.append(content)
        return self._mean_metrics(self.evaluate_metrics_aggr_fn, contents) if contents else None

    def _read_evaluate(self, content: RecordDict) -> tuple[RecordDict, MetricRecord]:
        return content, check_metrics(content, self.weighted_by_key)[1]

    def _mean_metrics(self, aggregate: MetricsAggregation | None, contents: list[RecordDict]) -> MetricRecord:
        if aggregate is None:
            return weighted_metrics(contents, self.weighted_by_key)
        return aggregate(contents, self.weighted_by_key or "")
