"""The base of every server rule: sampling, checked replies, the streaming mean, the pseudo-gradient."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from .checks import (
    LOGGER,
    ReplyRefused,
    TrainReply,
    check_metrics,
    check_train_reply,
    require,
    weighted_metrics,
)
from .nodes import NodeDirectory, sample
from .vectors import Layout, Vector, WeightedMean

MetricsAggregation = Callable[[list[RecordDict], str], MetricRecord]


@dataclass
class PhaseReport:
    """What came back in the last train or evaluate phase."""

    metrics: dict[int, MetricRecord] = field(default_factory=dict)
    """By partition id (node id where unknown), in partition order."""
    failures: dict[int, str] = field(default_factory=dict)
    """Why an answer was not used, by partition id."""


@dataclass(eq=False)
class PseudoGradientStrategy(Strategy):
    """Base of the server rules: ``x += step(D)`` with ``D = sum_i p_i (x_i - x)``.

    A rule implements `step` and nothing else. Trainable parameters get the step; everything else that is
    shared (BatchNorm statistics, counters) becomes its weighted mean. Replies are checked, and reduced in
    partition order whatever order they arrive in, so the result does not depend on timing. An answer that
    cannot be used is dropped, counted in `report`, and its reason logged once; if none is left, the model
    stays as it was.

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

    def __post_init__(self) -> None:
        for name in ("fraction_train", "fraction_evaluate"):
            fraction = getattr(self, name)
            require(0 <= fraction <= 1, name, fraction, "a number in [0, 1]")
        for name in ("min_train_nodes", "min_evaluate_nodes", "min_available_nodes", "seed"):
            number = getattr(self, name)
            require(number >= 0, name, number, "a whole number >= 0")
        self.updates = 0
        """How often the model was updated: t of the next step is ``updates + 1``."""
        self.state: dict[str, Vector] = {}
        """The rule's own vectors (moments, momentum) by name; with `updates`, all there is to resume."""
        self.report = PhaseReport()
        self.known_clients = 0
        """How many nodes were connected when the last phase began."""
        self.num_replies = 0
        """How many answers the current pseudo-gradient is the mean of."""
        self.nodes = NodeDirectory(self.node_timeout, self.query_timeout)
        """The nodes met so far, in partition order."""
        self._sent: list[Message] = []
        self._current: dict[str, NDArray] = {}
        self._phase = "before the first round"
        self._logged: set[tuple[int, str]] = set()

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
        minimum = self.min_train_nodes if training else self.min_evaluate_nodes
        self._sent = []
        self._phase = f"round {server_round}, {phase}"
        if fraction > 0:
            nodes = self.nodes.connected(grid, max(1, minimum, self.min_available_nodes))
            chosen = sample(nodes, fraction, minimum, (self.seed, server_round, int(training)))
            config["server-round"] = server_round
            content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
            if training:
                for name, extra in self.records(Layout(self._current, self.trainable)).items():
                    content[name] = extra
            self.known_clients = len(nodes)
            self._sent = [Message(content, node, phase) for node in chosen]
        return self._sent

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next model and the mean train metrics, or None for both when no answer could be used."""
        layout = Layout(self._current, self.trainable)
        parameters, statistics = layout.flatten(self._current)
        means = WeightedMean(parameters), WeightedMean(statistics)
        contents: list[RecordDict] = []
        self.begin(layout)
        for partition, reply in self._in_partition_order(replies):
            try:
                answer = check_train_reply(
                    _content(reply), self._current, self.arrayrecord_key, self.weighted_by_key
                )
                factor = self.absorb(reply.content, answer, layout)
            except ReplyRefused as refusal:
                self._drop(partition, str(refusal))
                continue
            weight = 1.0 if self.uniform else answer.weight
            means[0].add((answer.arrays[name] for name in layout.parameters), weight, factor)
            means[1].add((answer.arrays[name] for name in layout.statistics), weight)
            self.report.metrics[partition] = answer.metrics
            contents.append(RecordDict({"metrics": answer.metrics}))
        if not contents:
            return None, None
        self.updates += 1
        self.num_replies = len(contents)
        parameters += self.step(means[0].mean(), self.updates)
        statistics += means[1].mean()
        return (
            layout.unflatten(parameters, statistics),
            self._mean_metrics(self.train_metrics_aggr_fn, contents),
        )

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The mean evaluate metrics, or None when no answer could be used."""
        contents: list[RecordDict] = []
        for partition, reply in self._in_partition_order(replies):
            try:
                content = _content(reply)
                _, metrics = check_metrics(content, self.weighted_by_key)
            except ReplyRefused as refusal:
                self._drop(partition, str(refusal))
                continue
            self.report.metrics[partition] = metrics
            contents.append(content)
        return self._mean_metrics(self.evaluate_metrics_aggr_fn, contents) if contents else None

    def _mean_metrics(self, aggregate: MetricsAggregation | None, contents: list[RecordDict]) -> MetricRecord:
        if aggregate is None:
            return weighted_metrics(contents, self.weighted_by_key)
        return aggregate(contents, self.weighted_by_key or "")

    def _in_partition_order(self, replies: Iterable[Message]) -> Iterator[tuple[int, Message]]:
        """The replies with their partition ids, each as soon as those before it were there.

        An error reply may come from Flower itself, so a reply is known by the message it answers. What
        never came is reported as a failure.
        """
        self.report = PhaseReport()
        positions = {sent.metadata.message_id: i for i, sent in enumerate(self._sent)}
        unanswered = set(positions.values())
        targets = [self.nodes.partition(sent.metadata.dst_node_id) for sent in self._sent]
        waiting: dict[int, Message] = {}
        strangers: list[Message] = []
        due = 0
        for reply in replies:
            position = positions.get(reply.metadata.reply_to_message_id)
            if position is None:
                strangers.append(reply)
            elif position in unanswered:  # a second answer to the same message is ignored
                unanswered.remove(position)
                waiting[position] = reply
                while due in waiting:
                    yield targets[due], waiting.pop(due)
                    due += 1
        for position in sorted(waiting):
            yield targets[position], waiting[position]
        for reply in sorted(strangers, key=lambda r: self.nodes.rank(r.metadata.src_node_id)):
            yield self.nodes.partition(reply.metadata.src_node_id), reply
        for position in sorted(unanswered):
            self._drop(targets[position], "no answer in time")

    def _drop(self, partition: int, reason: str) -> None:
        self.report.failures[partition] = reason
        if (partition, reason) not in self._logged:
            self._logged.add((partition, reason))
            LOGGER.warning("%s: partition %d dropped: %s", self._phase, partition, reason)


def _content(reply: Message) -> RecordDict:
    if reply.has_error():
        raise ReplyRefused((reply.error.reason or f"error code {reply.error.code}").strip())
    if not reply.has_content():
        raise ReplyRefused("empty message")
    return reply.content
