"""An asynchronous protocol on the real clock: nodes train all the time, and answers count as they come.

Who answers when depends on machines and lines, so such a run is not reproducible.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, Message, MessageType

from fedbn_flower.strategies import PseudoGradientStrategy, ReplyRefused
from fedbn_flower.strategies.aggregation.buffers import AsynchronousProtocol, Buffer, BufferedAnswer
from fedbn_flower.strategies.aggregation.fold import TrainPhase
from fedbn_flower.strategies.messages.npy import viewed
from fedbn_flower.strategies.reply_reader import ReplyReader

from ..extensions.base import Configure, Exchange, Moment
from ..server.exchange import waits_of
from .schedule import IS_DISPATCHED, Buffers


@dataclass(frozen=True)
class Dispatch:
    """A message to a node that trains.

    ``answer`` says whose answer it asks for, and of which version; ``deadline`` when that no longer counts,
    in seconds of `time.monotonic`.
    """

    answer: BufferedAnswer
    message: Message
    deadline: float

    @property
    def node(self) -> int:
        return self.message.metadata.dst_node_id


class ArrivingBuffers(Buffers):
    """Buffers of the answers that come first.

    At most ``concurrency`` nodes train at once. Whenever an answer lands, an idle node gets the version that
    there is then: any of them, with equal probability. Nodes train on from one buffer to the next. A node
    answers at most once in a buffer, so it waits for the next version if it has answered. One that reports a
    failure, whose answer cannot be used, or does not come in time, waits as well: it costs its own answer,
    and another takes its place. A buffer for which no node is left ends with the answers that it has.

    Parameters
    ----------
    protocol : AsynchronousProtocol
        How answers count.
    seed : int
        The run's.
    concurrency : int
        M, how many train at once.
    """

    def __init__(self, protocol: AsynchronousProtocol, seed: int, concurrency: int) -> None:
        super().__init__(protocol)
        self.seed = seed
        self.concurrency = concurrency
        self._out: dict[str, Dispatch] = {}  # by the message's id
        self._models: dict[int, ArrayRecord] = {}  # the versions that are out, and the newest
        self._come: Iterator[Message] = iter(())  # replies that are there, but not looked at

    def answers(self, moment: Moment, model: ArrayRecord, configure: Configure) -> Iterable[Message]:
        began = time.monotonic()
        rule, server_round = moment.rule, moment.number
        self._models[server_round - 1] = model
        landed = self._land(moment, model, configure)
        landed.sort(key=lambda pair: pair[0].answer)
        dispatches = [dispatch for dispatch, _ in landed]
        answers = [dispatch.answer for dispatch in dispatches]
        models = {answer.version: self._models[answer.version] for answer in answers}
        sent = [dispatch.message for dispatch in dispatches]
        rule._buffer_ = Buffer(self.protocol, server_round - 1, answers, models, sent)
        configure()
        out = {dispatch.answer.version for dispatch in self._out.values()}
        self._models = {version: self._models[version] for version in out}
        rule.node_directory.busy = self._busy()  # whoever trains does not evaluate
        moment.exchange.seconds[MessageType.TRAIN] += time.monotonic() - began
        return [reply for _, reply in landed if reply]

    def _land(
        self, moment: Moment, model: ArrayRecord, configure: Configure
    ) -> list[tuple[Dispatch, Message | None]]:
        """Dispatch nodes until enough usable answers have landed; return all that did, and those lost."""
        rule, server_round, exchange = moment.rule, moment.number, moment.exchange
        waits = waits_of(exchange.grid)
        current, size, usable, wait = server_round - 1, self.protocol.size, 0, waits.shortest
        rng = np.random.default_rng([self.seed, server_round, 0, IS_DISPATCHED])
        sent = {name: viewed(array) for name, array in model.items()}
        reader = ReplyReader(rule._reading_(), server_round, TrainPhase(sent))
        landed: list[tuple[Dispatch, Message | None]] = []
        while usable < size:
            idle = self._idle(rule, server_round, exchange, [dispatch for dispatch, _ in landed])
            if (places := min(self.concurrency - len(self._out), len(idle))) > 0:
                chosen = sorted(idle[i] for i in rng.choice(len(idle), places, replace=False))
                answers = [BufferedAnswer(current, partition) for partition in chosen]
                rule._buffer_ = Buffer(self.protocol, current, answers, {current: model})
                messages = list(configure())
                exchange.push(messages)
                for message in messages:
                    partition = rule.node_directory.partition(message.metadata.dst_node_id)
                    deadline = time.monotonic() + exchange.timeout
                    dispatch = Dispatch(BufferedAnswer(current, partition), message, deadline)
                    self._out[message.metadata.message_id] = dispatch
            if not self._out:
                break
            if not (found := self._next(exchange)):
                time.sleep(wait)
                wait = waits.after(wait)
                continue
            wait = waits.shortest
            landed.append(found)
            if _is_usable(found[1], reader):
                usable += 1
                moment.on_answer(MessageType.TRAIN, usable, size)
        return landed

    def _busy(self) -> set[int]:
        """The nodes that train."""
        return {dispatch.node for dispatch in self._out.values()}

    def _idle(
        self,
        rule: PseudoGradientStrategy,
        server_round: int,
        exchange: Exchange,
        landed: Sequence[Dispatch],
    ) -> list[int]:
        """Return the partitions that may begin: of connected nodes that neither train nor wait."""
        directory = rule.node_directory
        directory.busy = self._busy() | {dispatch.node for dispatch in landed}
        at_least = 0 if self._out or landed else 1
        directory.connected(exchange.grid, at_least, f"round {server_round}, train: a buffer")
        _, available = directory.taking_part(rule.node_participation, server_round)
        return [directory.partition(node) for node in available.tolist()]

    def _next(self, exchange: Exchange) -> tuple[Dispatch, Message | None] | None:
        """Return an answer that has landed; or one that is too late, without a message; or None."""
        for look in (False, True):
            if look:
                self._come = iter(exchange.grid.pull_messages(list(self._out)))
            for reply in self._come:
                if dispatch := self._out.pop(reply.metadata.reply_to_message_id, None):
                    return dispatch, exchange.received(reply, dispatch.message)
        now = time.monotonic()
        late = next((key for key, dispatch in self._out.items() if dispatch.deadline <= now), None)
        return None if late is None else (self._out.pop(late), None)


def _is_usable(reply: Message | None, reader: ReplyReader) -> bool:
    """Whether the rule will use an answer: it checks it again when it sums the buffer."""
    if reply is None or not reply.has_content():
        return False
    try:
        reader.read(reply.content)
    except ReplyRefused:
        return False
    return True
