"""Clients in Ray actors: any worker serves any client, whose memory lives in the object store."""

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from flwr.app import ArrayRecord, Error, Message, MessageType, UserConfig
from ray.exceptions import RayError

from fedbn_flower.clients import ContextStore, Groups
from fedbn_flower.clients.problems.evaluation import Sums

from ...core.errors import RunCutOff
from ...core.private import ErrorCode, without_content
from ..grid import CALLS, ClientSide, LocalGrid, in_groups, partition_of
from .clusters import is_lost
from .pool import RayPool

LOGGER = logging.getLogger("flwr.fedbn")

CALL_BYTES = 4 * 2**20  # of replies that come back together
QUEUED = 2  # calls a worker has at a time, so that it never waits for the driver
AHEAD = 8  # calls a worker may be ahead of the slowest: bounds the replies that wait to be reduced
MOST_DIE_EARLY = 8  # workers that die in a phase before they have begun
HERE = 2**11  # clients whose small memories may lie in this process; those of more go to the object store


@dataclass
class Call:
    """Messages that a worker answers together, and perhaps sums; the ``order``-th of its phase."""

    order: int
    messages: list[Message]
    summed: bool = False
    retried: bool = False


class RayGrid(LocalGrid):
    """Sends messages to the pool's workers; the content of a round's messages is stored once.

    The next call goes to whichever worker is free. A worker that dies, by itself or with its machine, is
    replaced as soon as there is room for another, and what it was at is tried once more, from the same
    memories; a second time, these clients count as failed. So does, at the
    end of a timeout, whoever has not answered: the workers still busy with it are ended.

    Parameters
    ----------
    pool : RayPool
        The workers.
    num_clients, run_config, cohort, sums, clients
        As `LocalGrid` has them.
    remembers : bool
        Whether clients have memories at all; each is an object of Ray's, which is not free.
    examples : Sequence[int], optional
        How many training examples each client has: what takes longest is begun first.
    evaluated_at_once : bool
        Whether cohorts are evaluated in lockstep, too.

    Raises
    ------
    RunCutOff
        When Ray itself fails.
    """

    def __init__(
        self,
        pool: RayPool,
        num_clients: int,
        run_config: UserConfig,
        cohort: int = 1,
        sums: bool = False,
        remembers: bool = True,
        examples: Sequence[int] = (),
        clients: ClientSide | None = None,
        evaluated_at_once: bool = False,
    ) -> None:
        super().__init__(num_clients, run_config, cohort, sums, clients)
        self._at_once = {MessageType.TRAIN} | ({MessageType.EVALUATE} if evaluated_at_once else set())
        self._pool = pool
        self._remembers = remembers
        self._examples = examples
        # Of a cluster's machines only this one is there as long as the run.
        self._memories = _Memories(self, apart=not pool.inline or num_clients > HERE)
        pool.start_run(run_config, num_clients, self.clients)

    def client_memory(self, partition_id: int) -> Groups:
        memory = self._memories[partition_id]
        return {} if memory is None else ContextStore(ray.get(memory)).groups()

    @property
    def place(self) -> Mapping[str, Any]:
        return {"backend": "ray", "workers": len(self._pool.workers)}

    def work(self, messages: list[Message], timeout: float | None) -> Iterator[Message]:
        yield from self._run(self._calls(messages), timeout)

    def work_in_groups(
        self, groups: Sequence[list[Message]], summed: bool, timeout: float | None
    ) -> Iterator[Message]:
        """The replies to the last groups of a phase, whose first ones were answered elsewhere."""
        if summed or self._in_lockstep(groups[0]):
            yield from self._run(_as_calls(groups, summed), timeout)
        else:
            yield from self._run(self._balanced([m for group in groups for m in group]), timeout)

    def evaluate_in_shares(
        self, arrays: ArrayRecord, splits: str, classes: int
    ) -> Mapping[str, list[Sums]] | None:
        if len(self._pool.started) <= 1:
            return None
        self._pool.raylet.check()
        shares = self._pool.evaluated(ray.put(arrays), splits, classes)
        if shares is None:
            return None
        return {split: [batch for share in shares for batch in share[split]] for split in shares[0]}

    def _run(self, calls: list[Call], timeout: float | None) -> Iterator[Message]:
        self._pool.raylet.check()
        self._pool.grow()
        remembers = self._remembers and not (calls and not self.clients.remembers(calls[0].messages[0]))
        calls = self._longest_first(calls)
        phase = _Phase(self._pool, self._memories, calls, timeout, self.cohort == 1, remembers)
        self._pool.begin(phase)
        try:
            yield from phase.replies()
        except RayError as error:
            raise RunCutOff(f"Ray failed: {str(error).strip().splitlines()[0]}") from error

    def _calls(self, messages: list[Message]) -> list[Call]:
        summed = self.to_be_summed(messages, len(self._pool.workers))
        return _as_calls(summed, True) or self._balanced(messages)

    def _balanced(self, messages: list[Message]) -> list[Call]:
        """Cohorts where clients are in lockstep, whatever the workers; otherwise what balances them."""
        if not messages:
            return []
        size = self.cohort
        if not self._in_lockstep(messages):
            arrays = messages[0].content.array_records.values()
            reply_bytes = sum(len(array.data) for record in arrays for array in record.values())
            shares = CALLS * len(self._pool.workers)
            size = min(-(-len(messages) // shares), max(1, CALL_BYTES // max(1, reply_bytes)))
        return _as_calls(in_groups(messages, size), False)

    def _in_lockstep(self, messages: Sequence[Message]) -> bool:
        return self.cohort > 1 and messages[0].metadata.message_type in self._at_once

    def _longest_first(self, calls: list[Call]) -> list[Call]:
        """The calls so that the last to be begun are short; few at a time, since replies wait for earlier
        ones, and a call for those that are far behind it."""
        if not self._examples:
            return calls
        window = AHEAD * len(self._pool.workers) // 2
        return [
            call
            for start in range(0, len(calls), window)
            for call in sorted(calls[start : start + window], key=self._work, reverse=True)
        ]

    def _work(self, call: Call) -> int:
        return sum(self._examples[partition_of(message)] for message in call.messages)


def _as_calls(groups: Iterable[list[Message]], summed: bool) -> list[Call]:
    return [Call(i, group, summed) for i, group in enumerate(groups)]


class _Memories(dict[int, Any]):
    """Each client's memory as an object of Ray's, by partition; None where it has none."""

    def __init__(self, grid: LocalGrid, apart: bool) -> None:
        super().__init__()
        self.grid = grid
        self.apart = apart

    def __missing__(self, partition: int) -> Any:
        state = self.grid.first_state(partition)
        self[partition] = ray.put(state) if state else None
        return self[partition]

    def kept(self, memory: Any) -> Any:
        """Return what a worker returned: ``apart``, in this machine's object store, which spills to disk."""
        return ray.put(ray.get(memory)) if self.apart else memory


class _Phase:
    """The calls of one phase on their way."""

    def __init__(
        self,
        pool: RayPool,
        memories: _Memories,
        calls: list[Call],
        timeout: float | None,
        apart: bool,
        remembers: bool,
    ) -> None:
        self.pool = pool
        self.apart = apart  # whether the clients of a call may be tried again one by one
        self.remembers = remembers
        self.memories = memories
        self.calls = deque(calls)
        self.deadline = None if timeout is None else time.monotonic() + timeout
        self.running: dict[int, list[tuple[Call, list[Any]]]] = {i: [] for i in range(len(pool.workers))}
        self.died_early = 0  # workers that died while they started
        self.contents: dict[int, Any] = {}

    def replies(self) -> Iterator[Message]:
        """The replies, until all have come or the time is over."""
        while True:
            self._submit()
            waiting = {futures[0]: i for i, queue in self.running.items() for _, futures in queue}
            if not waiting and not self.calls:
                return
            waiting |= {future: i for i, future in self.pool.starting.items()}
            if not waiting:
                raise RunCutOff("no machine of the cluster is left that has the run's data")
            left = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
            ready, _ = ray.wait(list(waiting), num_returns=1, timeout=left)
            if not ready:
                return
            self.pool.raylet.check()
            worker = waiting[ready[0]]
            if self.pool.starting.get(worker) == ready[0]:
                self._welcome(worker)
                continue
            call, futures = next(c for c in self.running[worker] if c[1][0] == ready[0])
            try:
                replies, changed, printed = ray.get(ready[0])
                self._remember(call, changed, futures[1:])
            except RayError as error:
                if not is_lost(error):
                    raise
                yield from self._replace_dead(worker, str(error).strip().splitlines()[0])
                continue
            print(printed, end="")
            self.running[worker].remove((call, futures))
            self._submit()  # before the driver is busy with what came
            yield from replies

    def _remember(self, call: Call, changed: Sequence[bool], memories: Sequence[Any]) -> None:
        """Keep the memories that changed: all or, if one is lost with its machine, none."""
        if self.remembers:
            new = [
                (partition_of(message), self.memories.kept(memory))
                for message, is_new, memory in zip(call.messages, changed, memories, strict=True)
                if is_new
            ]
            self.memories.update(new)

    def _welcome(self, worker: int) -> None:
        """Use a worker that has started; start another if it has died of that."""
        try:
            self.pool.welcome(worker)
        except RayError as error:
            self.died_early += 1
            if not is_lost(error) or self.died_early > MOST_DIE_EARLY:
                raise
            self.pool.replace(worker)

    def abandon(self) -> None:
        """End the workers that are still busy, so that they do not hold up what comes next."""
        for worker, queue in self.running.items():
            if queue:
                self.pool.replace(worker)
                queue.clear()

    def _submit(self) -> None:
        """Give out calls, evenly, as long as none runs too far ahead of the first that is not done.

        One that is tried again has its worker for itself: the reply of a call may be lost when the next one
        kills the worker, which is then nobody else's death.
        """
        while self.calls:
            queues = {i: self.running[i] for i in self.pool.started}
            shared = [i for i, queue in queues.items() if not any(call.retried for call, _ in queue)]
            if not shared:
                return
            worker = min(shared, key=lambda i: len(self.running[i]))
            queue = self.running[worker]
            if self.calls[0].retried and queue:
                return
            orders = [call.order for calls in self.running.values() for call, _ in calls]
            ahead = self.calls[0].order - min(orders, default=self.calls[0].order)
            if len(queue) >= QUEUED or ahead > AHEAD * len(self.running):
                return
            call = self.calls.popleft()
            content = call.messages[0].content
            if id(content) not in self.contents:
                self.contents[id(content)] = ray.put(content)
            envelopes = [without_content(message) for message in call.messages]
            memories = [self.memories[partition_of(m)] for m in call.messages] if self.remembers else []
            handle = self.pool.workers[worker].handle.options(num_returns=1 + len(memories))
            futures = handle.remote(envelopes, [self.contents[id(content)]], call.summed, *memories)
            queue.append((call, futures if self.remembers else [futures]))

    def _replace_dead(self, worker: int, reason: str) -> Iterator[Message]:
        """Replace a dead worker. It died of the first of its calls; those behind it had not begun."""
        (first, _), *rest = self.running[worker]
        self.running[worker] = []
        self.pool.replace(worker)
        self.calls.extendleft(call for call, _ in reversed(rest))
        clients = ", ".join(str(partition_of(message)) for message in first.messages)
        if first.retried:
            LOGGER.warning("a worker died again of clients %s, which count as failed: %s", clients, reason)
            for message in first.messages:
                error = Error(ErrorCode.CLIENT_APP_CRASHED, f"its worker died twice: {reason}")
                yield Message(error, reply_to=message)
            return
        LOGGER.warning("a worker died; its clients %s are tried once more: %s", clients, reason)
        summed = first.summed and not self.apart
        apart = [[message] for message in first.messages] if self.apart else [first.messages]
        self.calls.extendleft(Call(first.order, messages, summed, True) for messages in reversed(apart))
