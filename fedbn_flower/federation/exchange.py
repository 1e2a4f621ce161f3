"""Send a round's messages and receive the replies, counting seconds and bytes; the model as it travels."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
from flwr.app import Array, ArrayRecord, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedbn_flower.clients import FedAvgClient
from fedbn_flower.strategies.messages.codecs import Codec
from fedbn_flower.strategies.messages.codecs.updates import compressed, decompressed
from fedbn_flower.strategies.messages.npy import array_bytes, decoded, encoded, encoded_bytes, rounded, viewed

from ..core.ground.wire import ARRAYS, COMPRESSED, METRICS, SENT_BYTES
from ..core.private import ErrorCode
from ..names import COMPRESS, STRATEGY, as_user_error
from .inputs import RunInputs

RESIDUAL = "residual"
"""Memory group of what the codec lost: e_i."""
CODEC = 31
"""The purpose of a codec's random numbers, after seed, partition and round."""

SHORTEST_WAIT, LONGEST_WAIT = 0.1, 3.0
"""Seconds between two looks for replies; Flower's own are 3."""

OnAnswer = Callable[[str, int, int], None]
"""Called with the phase, the number of replies so far, and the number of messages."""


class Exchange:
    """Sends the messages of one round and receives the replies.

    Parameters
    ----------
    grid : Grid
        Carries the messages.
    timeout : float
        Seconds to wait for the replies of a phase.
    summed : bool
        Whether models are summed where they were trained. Replies then say how many bytes each model has.
    codec : Codec, optional
        Of the models in the answers to train messages; they leave here decoded.

    Attributes
    ----------
    seconds : dict[str, float]
        Seconds spent waiting for replies, by phase (``train``, ``evaluate``).
    bytes_sent, bytes_received : int
        Bytes of all arrays, counted once for each client, as a deployment would carry them. Models that a
        simulation sums where they were trained count one by one.
    """

    def __init__(self, grid: Grid, timeout: float, summed: bool = False, codec: Codec | None = None) -> None:
        self.grid = grid
        self.timeout = timeout
        self.summed = summed
        self.codec = codec
        self.seconds = {MessageType.TRAIN: 0.0, MessageType.EVALUATE: 0.0}
        self.bytes_sent = 0
        self.bytes_received = 0

    def answers(
        self, phase: str, messages: Iterable[Message], on_answer: OnAnswer = lambda *_: None
    ) -> Iterator[Message]:
        """Send a phase's messages; yield the replies as they arrive."""
        sent = list(messages)
        self._count(sent)
        began = time.monotonic()
        replies = iter(self.grid.send_and_receive(sent, timeout=self.timeout))
        self.seconds[phase] += time.monotonic() - began

        def arriving() -> Iterator[Message]:
            done = 0
            asked: dict[str, Message] = {}
            while True:
                began = time.monotonic()
                reply = next(replies, None)
                self.seconds[phase] += time.monotonic() - began
                if reply is None:
                    return
                done += 1
                if self.codec and phase == MessageType.TRAIN:
                    asked = asked or {message.metadata.message_id: message for message in sent}
                reply = self.received(reply, asked.get(reply.metadata.reply_to_message_id))
                on_answer(phase, done, len(sent))
                yield reply

        return arriving()

    def push(self, messages: Sequence[Message]) -> None:
        """Send messages whose answers are to be looked for; each goes through `received`."""
        self._count(messages)
        self.grid.push_messages(messages)

    def received(self, reply: Message, asked: Message | None) -> Message:
        """Count a reply; return it with its model decoded if it answers the train message ``asked``."""
        self.bytes_received += self._bytes_of(reply)
        return self._decoded(reply, asked, self.codec) if asked and self.codec else reply

    def _count(self, messages: Iterable[Message]) -> None:
        sizes: dict[int, int] = {}
        for message in messages:
            content = message.content
            if id(content) not in sizes:
                sizes[id(content)] = array_bytes(content)
            self.bytes_sent += sizes[id(content)]

    def _bytes_of(self, reply: Message) -> int:
        """Return the bytes of a reply's arrays, also of those that were summed elsewhere."""
        if not reply.has_content():
            return 0
        metrics = reply.content.get(METRICS)
        if (
            self.summed
            and isinstance(metrics, MetricRecord)
            and isinstance(sent := metrics.get(SENT_BYTES), int)
        ):
            del metrics[SENT_BYTES]
            return sent
        return array_bytes(reply.content)

    def _decoded(self, reply: Message, message: Message, codec: Codec) -> Message:
        """Return a reply with its model decoded, or an error in its place if that cannot be."""
        content = reply.content if reply.has_content() else {}
        if not content or (self.summed and COMPRESSED not in content):
            return reply
        answer, codes = content.get(ARRAYS), content.pop(COMPRESSED, None)
        try:
            if not isinstance(answer, ArrayRecord) or not isinstance(codes, ArrayRecord):
                raise ValueError("missing; the client and the server are to have the same codec")
            received = message.content.array_records[ARRAYS]
            content[ARRAYS] = decompressed(codec, received, answer, codes)
        except Exception as error:  # what a client sends costs its own answer only
            reason = f"{COMPRESSED}: {error}"
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
        return reply


def model_to_send(arrays: ArrayRecord, names: Collection[str]) -> ArrayRecord:
    """Return the model as clients get it: entries of these names are rounded to bfloat16."""
    if not names:
        return arrays
    return ArrayRecord({name: rounded(a) if name in names else a for name, a in arrays.items()})


def next_model(
    inputs: RunInputs, updated: ArrayRecord | None, arrays: ArrayRecord, sent: ArrayRecord
) -> ArrayRecord:
    """Return the model after a round, from what the rule made of the model that was sent.

    What rounding took from the parameters, ``x - sent``, is not lost: a rule that makes ``sent + step`` gives
    ``x + step``. The step is of the pseudo-gradient relative to what clients got.
    """
    if updated is None or sent is arrays:
        return updated or arrays
    entries = dict(updated)
    for name in inputs.stepped_names:
        moved, x, got = (viewed(record[name]) for record in (updated, arrays, sent))
        with np.errstate(invalid="ignore"):  # an entry may be inf, as in attention masks
            entries[name] = encoded(np.where(x == got, moved, moved + (x - got)).astype(x.dtype))
    return ArrayRecord(entries)


def train_bytes(inputs: RunInputs) -> tuple[int, int]:
    """Return the bytes of the arrays of a train message and of its answer, before there is one.

    Those of prototypes and of struggle scores, which depend on the clients' classes, are not counted.
    """
    config, (model, _) = inputs.config, inputs.model()
    entries = {name: inputs.initial().entries[name] for name in inputs.split.shared}
    sizes = {name: encoded_bytes(array) for name, array in entries.items()}
    with_extras = STRATEGY.find(config.strategy).extras_like_parameters
    extras = sum(sizes[name] for name in inputs.stepped_names) if with_extras else 0
    model_sent = model_to_send(ArrayRecord({n: Array(a) for n, a in entries.items()}), inputs.rounded_names)
    down, up = array_bytes(RecordDict({ARRAYS: model_sent})) + extras, sum(sizes.values()) + extras
    if codec := config.codec:
        names = [name for name, p in model.named_parameters() if p.requires_grad and name in entries]
        coded = {name: entries[name] for name in names if entries[name].dtype.kind == "f"}
        codec = codec.of_shapes(array.shape for array in coded.values())
        with as_user_error(COMPRESS.key, config.compress):
            codes = codec.layout(sum(array.size for array in coded.values())).values()
        up += sum(encoded_bytes(np.empty(*code)) for code in codes) - sum(sizes[name] for name in coded)
    return down, up


def compressed_model(
    codec: Codec,
    client: FedAvgClient,
    model: Mapping[str, NDArray],
    asked: RecordDict,
    server_round: int,
) -> tuple[ArrayRecord, dict[str, NDArray], dict[str, NDArray]]:
    """Return the codes of what was trained, the model that they give, and what of it travels as it is.

    Other names of a tied tensor travel, with the values that the codes give.
    """
    arrays, initial = asked.array_records[ARRAYS], client.task.initial
    received = {name: decoded(arrays[name], initial[name]) for name in arrays}
    names = [name for name in model if name in client.trained_names and model[name].dtype.kind == "f"]
    residual = (client.memory.read(RESIDUAL) or {}) if codec.feedback else {}
    rng = np.random.default_rng([*client.task.seed, server_round, CODEC])
    trained = {name: model[name] for name in names}
    codes, given, residual = compressed(codec, received, trained, residual, rng)
    if codec.feedback:
        client.memory.write(RESIDUAL, residual)
    tied = {alias: given[name] for name in names for alias in client.aliases.get(name, ())}
    whole = {**model, **tied, **given}
    return codes, whole, {name: whole[name] for name in whole if name not in given}
