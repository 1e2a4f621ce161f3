"""The answers to a phase's messages: what the server takes of them, and what its rule reads in their place.

Where clients evaluate and train in one answer, its vector has the integers of the training, then those of the
evaluation, and one sum has two parts.

One sum of what clients evaluate and train: one vector has the integers of both, under one mask.

Where a message asks for both, the integers of the evaluation wait in the node's memory for those of the
training. They are never sent by themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedbn_flower.strategies import PhaseReport, ReplyRefused
from fedbn_flower.strategies.aggregation.fold import PARAMETERS, STATISTICS
from fedbn_flower.strategies.aggregation.vectors import Layout
from fedbn_flower.strategies.messages.gate import NPY_HEADER_BYTES, record_of
from fedbn_flower.strategies.messages.npy import array_bytes, decoded, encoded, viewed

from ..core.ground.wire import (
    COMPRESSED,
    CONFIG,
    EVALUATED,
    EVALUATION,
    FAILED,
    MEMORY,
    METRICS,
    NUM_EXAMPLES,
    REASON,
    SENT_BYTES,
    STATES,
    SUM_WEIGHTS,
    SUMS,
)
from ..core.private import ErrorCode, set_message_id
from ..extensions.base import Moment
from . import words
from .plan import Found, Plan

Record = ArrayRecord | MetricRecord


@dataclass
class Gathered:
    """What a phase's answers came to so far.

    Parameters
    ----------
    total : NDArray
        The sum of the vectors.
    answered : dict[int, RecordDict]
        What else is in the answers, by node.
    failures : dict[int, str]
        Why a client has no part in the sum, by node.
    heard : bytes
        The digest of what those that have answered were told, where sites sign.
    """

    total: NDArray[np.unsignedinteger]
    answered: dict[int, RecordDict] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    heard: bytes = b""
    apart: list[int] = field(default_factory=list)
    """Who was told something else."""
    _totals: dict[bytes, NDArray[np.unsignedinteger]] = field(default_factory=dict)
    _heard: dict[int, bytes] = field(default_factory=dict)

    def add(
        self, node: int, beside: RecordDict, vector: NDArray[np.unsignedinteger] | None, heard: bytes
    ) -> None:
        """Add a client's vector to those of the clients that were told the same."""
        if heard not in self._totals:
            self._totals[heard] = np.zeros_like(self.total) if self._totals else self.total
        if vector is not None:
            self._totals[heard] += vector
        self._heard[node], self.answered[node] = heard, beside

    def settle(self) -> None:
        """Leave those out that were told something else than most.

        Their masks with the others do not cancel. So they have not answered, and their vectors stay masked.
        """
        if not self._heard:
            return
        self.heard, most = Counter(self._heard.values()).most_common(1)[0]
        self.total = self._totals[self.heard]
        self.apart = [node for node, heard in self._heard.items() if heard != self.heard]
        for node in self.apart:
            del self.answered[node]
            self.failures[node] = f"secagg: it was told another model or configuration than {most} others"

    def ends(self, reason: str, nodes: Iterable[int]) -> None:
        """Note that there is no sum: nobody has a part in it."""
        self.failures |= dict.fromkeys(self.answered, reason)
        self.failures |= {node: reason for node in nodes if node not in self.failures}
        self.answered.clear()


@dataclass(frozen=True)
class Part:
    """What a sum says of a training, or of an evaluation.

    Parameters
    ----------
    found : Found, optional
        What it says; None if there is nothing.
    records : Mapping[str, Record]
        What the first of the answers bears beside its metrics.
    means : Mapping[str, float]
        The metrics of all together.
    why : str
        Why there is nothing.
    """

    found: Found | None
    records: Mapping[str, Record] = field(default_factory=dict)
    means: Mapping[str, float] = field(default_factory=dict)
    why: str = ""

    def write(self, contents: Sequence[RecordDict], prefix: str) -> None:
        """Write it into answers, in records whose names begin with the prefix; the first one bears it."""
        if self.found is None:
            for content in contents:
                content[f"{prefix}{FAILED}"] = ConfigRecord({REASON: self.why})
            return
        count, means = max(1.0, self.found.examples / max(1, len(contents))), self.means
        for content in contents:
            own = content.metric_records.get(f"{prefix}{METRICS}", {SENT_BYTES: 0})
            content[f"{prefix}{METRICS}"] = MetricRecord({**own, NUM_EXAMPLES: count, **means})
            means = {}
        for content in contents[:1]:
            content.update({f"{prefix}{name}": record for name, record in self.records.items()})


def nodes_of(messages: Iterable[Message]) -> list[int]:
    """Return the nodes that messages go to."""
    return [message.metadata.dst_node_id for message in messages]


def contents_of(messages: Iterable[Message]) -> Iterable[RecordDict]:
    """Return the contents of messages, one that several share once."""
    return {id(message.content): message.content for message in messages}.values()


def beside(content: RecordDict, both: bool) -> RecordDict:
    """Return what of a client's answer is not secret: its bytes, its memory, and why it has not evaluated."""
    metrics = content.get(METRICS)
    sent = metrics.get(SENT_BYTES) if isinstance(metrics, MetricRecord) else None
    if not isinstance(sent, int):
        sent = array_bytes(content)
    names = (MEMORY, *((f"{EVALUATED}{MEMORY}", f"{EVALUATED}{FAILED}") if both else ()))
    records = {name: content[name] for name in names if isinstance(content.get(name), ConfigRecord)}
    return RecordDict({METRICS: MetricRecord({SENT_BYTES: sent}), **records})


def check_trained(content: RecordDict) -> None:
    """Refuse an answer to both of which the training has failed: it has no vector.

    Raises
    ------
    ReplyRefused
        With the client's reason.
    """
    if isinstance(failed := content.get(FAILED), ConfigRecord):
        raise ReplyRefused(str(failed.get(REASON, "")))


def written(
    messages: Sequence[Message], gathered: Gathered, parts: Mapping[str, Part], name: str
) -> Iterator[Message]:
    """Yield answers that have nothing but what the sum says: the first of each part bears it.

    Parameters
    ----------
    messages : Sequence[Message]
        The phase's.
    gathered : Gathered
        Who has answered.
    parts : Mapping[str, Part]
        What the sum says, by how the names of its records begin.
    name : str
        Begins the ids of messages that were not sent, since their clients have no part in the sum.
    """
    for message in messages:
        if not message.metadata.message_id:
            set_message_id(message, f"{name}-{message.metadata.dst_node_id}")
    answers = [(m, gathered.answered.get(m.metadata.dst_node_id)) for m in messages]
    for prefix, part in parts.items():
        asked = [c for m, c in answers if c is not None and (not prefix or EVALUATION in m.content)]
        part.write([content for content in asked if f"{prefix}{FAILED}" not in content], prefix)
    for message, content in answers:
        reason = gathered.failures.get(message.metadata.dst_node_id)
        if content is not None:
            yield Message(content, reply_to=message)
        elif reason is not None:
            yield Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


def vector_in(
    content: RecordDict, like: NDArray[np.unsignedinteger], simulated: bool
) -> NDArray[np.unsignedinteger] | None:
    """Return the vector of an answer; None of one that a simulation has summed with others'."""
    if simulated and COMPRESSED not in content:
        return None
    entry = record_of(content, COMPRESSED, ArrayRecord).get(words.VECTOR)
    if entry is None or len(entry.data) > like.nbytes + NPY_HEADER_BYTES:
        raise ReplyRefused("secagg: the vector is missing or too long")
    vector: NDArray[np.unsignedinteger] = decoded(entry, like)
    if vector.shape != like.shape or vector.dtype != like.dtype:
        raise ReplyRefused(
            f"secagg: a vector of {vector.shape} {vector.dtype}, expected {like.shape}", "shape"
        )
    return vector


def config_bytes(message: Message) -> int:
    """Return the bytes of a step of the exchange."""
    if not message.has_content():
        return 0
    records = [message.content.get(name) for name in (words.SECAGG, words.UPCOMING)]
    values = [v for record in records if isinstance(record, ConfigRecord) for v in record.values()]
    texts = (v if isinstance(v, list) else [v] for v in values)
    return sum(len(text) for some in texts for text in some if isinstance(text, bytes))


def without_metrics(report: PhaseReport) -> PhaseReport:
    """Return who answered, without what."""
    return PhaseReport({partition: MetricRecord() for partition in report.metrics}, report.failures)


def sums_of(moment: Moment, found: Found, layout: Layout) -> dict[str, ArrayRecord | MetricRecord]:
    """Return the sums as a worker that sums a group would."""
    update, others = found.update.astype(layout.dtypes[0]), found.others.astype(layout.dtypes[1])
    layout.tie(update)
    for sums, sent in zip((update, others), layout.flatten(moment.rule._train_phase_.sent()), strict=True):
        if not (finite := np.isfinite(sent)).all():  # attention masks stay as they are
            sums[~finite] = sent[~finite]
    records = {PARAMETERS: encoded(update), STATISTICS: encoded(others)}
    return {SUMS: ArrayRecord(records), SUM_WEIGHTS: MetricRecord(dict.fromkeys(records, found.weight))}


def states_of(expected: Mapping[str, NDArray], found: Found) -> dict[str, ArrayRecord]:
    """Return the states of further metrics, each like the one that is expected."""
    states = {}
    for name, like in expected.items():
        numbers = found.states[name]
        whole = np.rint(numbers) if like.dtype.kind in "iu" else numbers
        states[name] = encoded(whole.astype(like.dtype).reshape(like.shape))
    return {STATES: ArrayRecord(states)} if states and found.counts else {}


Vector = NDArray[np.unsignedinteger]
WAITING = "secagg-evaluated"
"""The entry of a node's state for the integers of an evaluation that goes with a training."""


def say_both(messages: Iterable[Message], number: int) -> None:
    """Tell clients that evaluate and train in a round that both go into one vector."""
    for content in contents_of(messages):
        for name in {CONFIG, EVALUATION} & content.keys():
            record_of(content, name, ConfigRecord)[words.BOTH] = number


def waits(state: RecordDict, vector: Vector, asked: Mapping[str, object]) -> bool:
    """Keep the vector of an evaluation if a training is to follow it; return whether it is kept."""
    if not asked.get(words.BOTH):
        return False
    state[WAITING] = ArrayRecord({str(asked[words.BOTH]): encoded(vector)})
    return True


def followed(vector: Vector, state: RecordDict, asked: Mapping[str, object], plan: Plan) -> Vector:
    """Return the vector of a training, followed by that of the evaluation if the server wants both.

    A client that has evaluated nothing adds nothing to the metrics.
    """
    waiting, number = state.pop(WAITING, None), asked.get(words.BOTH)
    if not number:
        return vector
    found = waiting.get(str(number)) if isinstance(waiting, ArrayRecord) else None
    own = plan.evaluated(0, {}, {}) if found is None else viewed(found)
    return np.concatenate([vector, own.astype(vector.dtype)])
