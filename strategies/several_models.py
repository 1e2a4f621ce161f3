"""`SeveralModels`, the base of server rules that keep more than one model, and `PersonalModels` among them.

The models are in the rule's state, by name, once each: so a checkpoint is complete. A message carries its
client's model, answers are summed by model, and the *main* model, which the rest of the run uses, is the mean
of the trained ones. It supplies entries that a model lacks, and is sent to clients without a model.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.exception import AggregationError
from numpy.typing import NDArray

from fedbn_flower.core.ground.wire import METRICS

from .aggregation.fold import PARAMETERS, STATISTICS, Fold, PartialSum
from .aggregation.vectors import Layout, blocks
from .base import PseudoGradientStrategy
from .messages.npy import encoded, viewed
from .messages.replies import PhaseReport
from .messages.validation import Answer
from .reply_reader import CheckedReply, ReplyReader

ONE_MODEL: Mapping[str, Collection[object]] = {
    "mean": {"weighted"},
    "protocol": {"sync"},
    "dp": {"none"},
    "compress": {"none"},
    "compress-down": {"none"},
    "selection": {"uniform", "by-size"},
    "unfreeze-at": {0},
}
"""What goes with several models: all else knows of one only."""

MAIN = "main"
"""The name of the main model in tables."""


class SeveralModels(PseudoGradientStrategy):
    """Keeps models by name in ``rule_state.models``, and each client's model name in ``rule_state.assigned``.

    A subclass decides which model a client is sent, and how its answer is used: see `Clusters`, whose clients
    share models, and `PersonalModels`, with one for each client.
    """

    requires: ClassVar[Mapping[str, Collection[object]]] = ONE_MODEL
    keeps_models = True

    first_model: Callable[[int], Mapping[str, NDArray]] | None = None
    """Returns the initial entries of the n-th model, which differ by n. Assign it before the first round."""

    @abstractmethod
    def model_of(self, partition: int) -> str:
        """Return the name of the model that a client has."""

    def answered(self, partition: int, answer: Answer) -> str:
        """Return the name of the model that a client has trained."""
        return self.model_of(partition)

    def entries(self, name: str, main: ArrayRecord) -> ArrayRecord:
        """Return a model; its entries that are not kept are those of the main one."""
        kept = self.rule_state.models.get(name, ArrayRecord())
        return ArrayRecord({entry: kept.get(entry, array) for entry, array in main.items()})

    def group_of(self, partition: int, phase: str) -> str:
        """Return the name of what a client is sent; clients with the same name are sent the same."""
        return self.model_of(partition)

    def records_of(self, group: str, main: ArrayRecord, phase: str) -> dict[str, ArrayRecord]:
        """Return the models that the clients of a group are sent, by the name of the record."""
        return {self.arrayrecord_key: self.entries(group, main)}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = super().configure_train(server_round, arrays, config, grid)
        self._train_phase_ = replace(self._train_phase_, model=arrays)
        return messages

    def _construct_messages(
        self, record: RecordDict, node_ids: list[int], message_type: str
    ) -> Iterable[Message]:
        main = record[self.arrayrecord_key]
        assert isinstance(main, ArrayRecord)
        others = {name: one for name, one in record.items() if name != self.arrayrecord_key}
        contents: dict[str, RecordDict] = {}
        messages = []
        for node in node_ids:
            group = self.group_of(self.node_directory.partition(node), message_type)
            if group not in contents:
                contents[group] = RecordDict({**self.records_of(group, main, message_type), **others})
            messages.append(Message(contents[group], node, message_type))
        return messages

    def _note_evaluation_(self, partition: int, content: RecordDict, report: PhaseReport) -> None:
        name = self.model_of(partition)
        if name in self.rule_state.models:
            self.rule_state.assigned[partition] = name
        report.models[partition] = self.rule_state.assigned.get(partition, MAIN)

    def collect_train(self, server_round: int, replies: Iterable[Message]) -> "Trained | None":
        """Return the answers by model, summed on arrival; None with too few usable ones.

        Raises
        ------
        InconsistentMessageReplies
            When all answers differ from the model that was sent in the same way.
        AggregationError
            When no model was sent.
        """
        main = self._train_phase_.model
        if not isinstance(main, ArrayRecord) or not main:
            raise AggregationError(f"{type(self).__name__} needs configure_train with a model")
        reading = ReplyReader(self._reading_(), server_round, self._train_phase_)
        trained = self.begin(reading, main, self._phase_replies_.count(MessageType.TRAIN))
        for position, partition, read in self._phase_replies_.usable(
            MessageType.TRAIN, server_round, self._screened_(replies, is_train=True), reading.read
        ):
            assert read.answer
            self._further_names_.admit(server_round, read.metrics, self.expected_metrics)
            name = self.answered(partition, read.answer)
            trained.add(name, position, partition, read)
            keeps = reading.how.keeps_answers
            reading.contents.append(read.answer.content if keeps else RecordDict({METRICS: read.metrics}))
            self.phase_report.metrics[partition] = read.metrics
            self.phase_report.states[partition] = read.states
            self.phase_report.models[partition] = name
        if len(reading.contents) < self._min_replies_:
            self._phase_replies_.too_few(len(reading.contents), f"min_replies is {self._min_replies_}")
            return None
        return trained

    def step_train(self, collected: "Trained") -> tuple[ArrayRecord, MetricRecord | None]:
        """Return the next main model and the mean train metrics; every model is stepped.

        Raises
        ------
        AggregationError
            When a step makes a model not finite.
        """
        updated = collected.stepped()
        self.rule_state.updates += 1
        return updated, self.train_metrics_aggr_fn(collected.reading.contents, self.weighted_by_key)

    @abstractmethod
    def begin(self, reading: ReplyReader, main: ArrayRecord, count: int) -> "Trained":
        """Return a collector for the answers of a round of ``count`` messages."""


class Trained:
    """Sums a round's answers by model, on arrival so that they need not be kept, and steps the models.

    Parameters
    ----------
    rule : SeveralModels
        The round's rule. Its state changes in `stepped` only.
    reading : ReplyReader
        Of the main model that was sent.
    main : ArrayRecord
        This model.
    count : int
        Number of messages of the round.
    """

    def __init__(self, rule: SeveralModels, reading: ReplyReader, main: ArrayRecord, count: int) -> None:
        self.rule, self.reading, self.main, self.count = rule, reading, main, count
        self.sums: dict[str, tuple[ReplyReader, Fold]] = {}
        self.clients: dict[int, str] = {}
        """Who has trained which model."""

    def add(self, name: str, position: int, partition: int, read: CheckedReply) -> None:
        """Add a client's answer to those of its model."""
        self.clients[partition] = name
        self.sum(name, position, partition, read)

    def sum(self, name: str, position: int, partition: int, read: CheckedReply) -> None:
        """Add an answer to the sum of its model. Positions must not decrease."""
        if name not in self.sums:
            phase = replace(self.reading.phase, model=self.rule.entries(name, self.main))
            reading = ReplyReader(self.reading.how, self.reading.server_round, phase)
            self.sums[name] = reading, Fold(reading.new_partial_sum, self.count)
        reading, fold = self.sums[name]
        reading.add(fold, position, partition, read)

    def stepped(self) -> ArrayRecord:
        """Step every model with answers; return the mean of these models, weighted by their answers."""
        state, rule = self.rule.rule_state, self.rule
        weighed = []
        for name in sorted(self.sums):
            reading, fold = self.sums[name]
            summed = fold.result()
            weight = summed.sums[PARAMETERS].total_weight  # type: ignore[attr-defined]
            means = summed.means()
            delta, statistics = means.pop(PARAMETERS), means.pop(STATISTICS)
            assert reading.round
            answers = len(reading.contents)
            round = replace(reading.round, num_answers=answers, metrics=reading.metrics, means=means)
            model = rule._updated_(round, reading.reference, delta, statistics, was_sent=True)
            weighed.append((model, weight))
            state.models[name] = model
        state.assigned.update(self.clients)
        return self.mean(weighed)

    def mean(self, weighed: Iterable[tuple[ArrayRecord, float]]) -> ArrayRecord:
        """Return the weighted mean of models, or the main one that was sent if there are none."""
        partial: PartialSum | None = None
        for model, weight in weighed:
            partial = partial or self.reading.new_partial_sum()
            arrays = {name: viewed(array) for name, array in model.items()}
            partial.add(Answer(arrays, weight, MetricRecord(), RecordDict()), weight, 1.0, {})
        if partial is None:
            return self.main
        means = partial.means()
        assert self.reading.round
        round, reference = self.reading.round, self.reading.reference
        return self.rule._updated_(round, reference, means[PARAMETERS], means[STATISTICS], True, steps=False)


class Clusters(SeveralModels):
    """``x_k += eta sum_i p_i (x_i - x_k)`` over the clients of model k."""

    def begin(self, reading: ReplyReader, main: ArrayRecord, count: int) -> Trained:
        return Trained(self, reading, main, count)


class PersonalModels(SeveralModels):
    """Each client has a model of its own.

    A client that has not answered yet is sent the main model. A client whose answer is lost keeps its current
    model. The server keeps one model, without a copy, for each client that has answered. The main model is
    the mean of those that were trained in a round.
    """

    requires = {**SeveralModels.requires, "clip-update-norm": {0.0}}  # noqa: RUF012

    def model_of(self, partition: int) -> str:
        return f"client-{partition}"

    def begin(self, reading: ReplyReader, main: ArrayRecord, count: int) -> Trained:
        return Personal(self, reading, main, count)

    @abstractmethod
    def take(self, trained: Mapping[str, ArrayRecord], layout: Layout) -> None:
        """Store the models trained in a round, by name, in the rule's state."""


class Personal(Trained):
    """Takes a round's answers: each is its client's new model, and their sum is the main one."""

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
