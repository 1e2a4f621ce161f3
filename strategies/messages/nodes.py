"""The connected nodes in partition order, and which of them take part in a round."""

import logging
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedbn_flower.core.ground.wire import PARTITION, PARTITION_ID, QUERY_PARTITION_ID

from .gate import ReplyRefused, answers, record_of
from .validation import LOGGER

MAX_NAMES = 8  # per log line
MAX_PARTITIONS = 2**53
NOT_ARRIVED = frozenset({3, 4, 5})
"""Flower's error codes of a message or reply that did not arrive: the app has not answered."""


class Participation(Protocol):
    """Which connected nodes take part in a round, by partition id, or node id if that is unknown."""

    def takes_part(self, partition: int) -> bool:
        """Return whether the node belongs to the federation. Other nodes are ignored and not logged."""

    def available(self, server_round: int, partition: int) -> bool:
        """Return whether the node can be sampled in this round, to train or to evaluate."""

    def answers(self, server_round: int, partition: int) -> bool:
        """Return whether a node sampled to train will give a usable answer. If not, it gets no message."""


@runtime_checkable
class AnswersForMany(Protocol):
    """A `Participation` that can be asked about many nodes at once, by an array of their partitions.

    Its answers are those to the single questions, bool, of the array's shape.
    """

    def all_taking_part(self, partitions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return `Participation.takes_part` of each."""

    def all_available(self, server_round: int, partitions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return `Participation.available` of each."""


@runtime_checkable
class KnowsWhoIsFirst(Protocol):
    """A `Participation` with over-selection: only the first answers of the clients asked to train count."""

    over_select: float
    """How many times as many."""

    def first_answers(
        self, server_round: int, partitions: NDArray[np.integer], wanted: int
    ) -> NDArray[np.bool_]:
        """Return whose answers count, at most ``wanted`` of those asked. The others get no message.

        An unknown partition is given as the node id, of up to 64 bits.
        """


@runtime_checkable
class KnowsWhoIsTested(Protocol):
    """A `Participation` in which some clients train but do not evaluate."""

    untested: frozenset[int]
    """Their partitions."""


@runtime_checkable
class KnowsPartitions(Protocol):
    """A Grid that numbers its nodes by partition: none has to be queried."""

    def partition_of_node(self, node_id: int) -> int:
        """Return the partition that the node holds."""


class Everybody:
    """All connected nodes take part in every round."""

    def takes_part(self, partition: int) -> bool:
        return True

    def available(self, server_round: int, partition: int) -> bool:
        return True

    def answers(self, server_round: int, partition: int) -> bool:
        return True


class NodeSelection(Protocol):
    """Which of the available nodes train in a round."""

    def __call__(
        self,
        server_round: int,
        nodes: Sequence[int],
        count: int,
        rng: np.random.Generator,
        content: RecordDict,
    ) -> list[int]:
        """Return at most ``count`` of the nodes, in their given order.

        ``content`` has the round's model and configuration, as sent to the nodes that train.
        """


class TooFewNodes(TimeoutError):
    """Too few nodes connected in time, or one does not report its partition, which is needed. The message
    gives the wait in seconds, the number or the nodes, and the setting.
    """


class NodeDirectory:
    """The nodes of a federation and the partition of each.

    Node ids are random under Flower's own runtimes. So with ``ask``, each node is queried for its partition
    id until it answers: a ``query.partition_id`` message, answered by a ConfigRecord ``partition`` with the
    key ``partition-id``. A node that was not queried, has not answered yet, or claims the partition of
    another connected node, comes after the others, ordered by node id.

    Parameters
    ----------
    ask : bool
        Whether to query nodes. A node whose app has no handler for the query logs an error.
    node_timeout : float
        Seconds to wait for enough nodes to connect.
    query_timeout : float
        Seconds to wait for the answers to the query.
    """

    def __init__(self, ask: bool, node_timeout: float, query_timeout: float) -> None:
        self.ask = ask
        self.node_timeout = node_timeout
        self.query_timeout = query_timeout
        self.busy: Collection[int] = ()
        """Nodes that still train when others are asked: none of them is available. Assign another."""
        self.needed_by = ""
        """The setting that goes by partition: no round begins until each node's is known. Assign another."""
        self._silent: set[int] = set()  # nodes that have not answered the query yet
        self._warned: set[int] = set()
        self._claims: dict[int, int | None] = {}
        self._partition_ids: dict[int, int] = {}
        self._connected: dict[str, tuple[bool, int, int]] = {}  # name -> rank
        self._known: list[int] = []  # in the grid's order, as of the last call
        self._ordered: list[int] = []
        self._nodes = np.empty(0, object)  # the same as an array of Python's ints, and their partitions
        self._partitions = np.empty(0, np.int64)

    @property
    def count(self) -> int:
        """Number of nodes at the last call of `connected`; 0 before."""
        return len(self._known)

    def partition(self, node_id: int) -> int:
        """Return the node's partition id, or its node id if it has none."""
        return self._partition_ids.get(node_id, node_id)

    def name(self, node_id: int) -> str:
        """Return the node's name for the log."""
        held = self._partition_ids.get(node_id)
        return f"node {node_id}" if held is None else f"partition {held}"

    def rank(self, node_id: int) -> tuple[bool, int, int]:
        """Return the sort key of a node: by partition id, then by node id."""
        return node_id not in self._partition_ids, self._partition_ids.get(node_id, 0), node_id

    def connected(self, grid: Grid, at_least: int, reason: str) -> list[int]:
        """Return the connected nodes in partition order. ``reason`` names the setting behind ``at_least``.

        Raises
        ------
        TooFewNodes
            When fewer than ``at_least`` are connected after ``node_timeout`` seconds, or when there is no
            partition by then of a node, and it is `needed_by` a setting.
        """
        deadline = time.monotonic() + self.node_timeout
        while True:
            nodes = self._wait_for(grid, at_least, reason, deadline)
            if nodes == self._known and self._silent.isdisjoint(nodes):
                break
            if self.ask:
                self._learn_partitions(grid, nodes)
            if not (lacking := self._without_partition(nodes)):
                self._place(nodes)
                break
            if time.monotonic() >= deadline:
                wanted = f"the partition of each node, by which {self.needed_by} goes: {'; '.join(lacking)}"
                raise TooFewNodes(f"waited {self.node_timeout:g} s for {wanted}")
            time.sleep(max(0.0, min(1, deadline - time.monotonic())))
        return list(self._ordered)

    def _wait_for(self, grid: Grid, at_least: int, reason: str, deadline: float) -> list[int]:
        """Return the connected nodes in the grid's order, once there are enough. A number is logged once."""
        logged = at_least
        while len(nodes := list(grid.get_node_ids())) < at_least:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                wanted = f"{at_least} nodes ({reason}); {len(nodes)} connected"
                raise TooFewNodes(f"waited {self.node_timeout:g} s for {wanted}")
            if len(nodes) != logged:
                waiting = "Waiting for nodes to connect: %d connected (minimum required: %d, %s)."
                LOGGER.info(waiting, len(nodes), at_least, reason)
                logged = len(nodes)
            time.sleep(min(1, remaining))
        return nodes

    def _place(self, nodes: list[int]) -> None:
        """Put the nodes in partition order."""
        self._log_changes(nodes)
        self._known, self._ordered = nodes, sorted(nodes, key=self.rank)
        self._nodes = np.array(self._ordered, object)
        self._partitions = np.array(list(map(self.partition, self._ordered)))

    def _without_partition(self, nodes: list[int]) -> list[str]:
        """Return for each node whose partition is needed and not known why it is not.

        Raises
        ------
        TooFewNodes
            When a node has none: waiting would not help.
        """
        if not self.needed_by or not self.ask:
            return []
        unknown = [node for node in nodes if node not in self._partition_ids]
        for node in unknown:
            if node in self._claims and self._claims[node] is None:
                has_none = f"node {node} has no partition-id in its node config"
                raise TooFewNodes(f"{has_none}, and {self.needed_by} goes by it")
        reasons = {node: f"claims partition {self._claims.get(node)}, another's" for node in unknown}
        reasons |= dict.fromkeys(self._silent, "has not answered")
        return [f"node {node} {reasons[node]}" for node in unknown][:MAX_NAMES]

    def taking_part(self, who: Participation, server_round: int) -> tuple[NDArray, NDArray]:
        """Return the nodes that take part, and those of them that are available in this round.

        Both are from the last call of `connected`, in partition order, as arrays of Python ints.
        """
        if isinstance(who, AnswersForMany):
            takes_part = who.all_taking_part(self._partitions)
            available = takes_part & who.all_available(server_round, self._partitions)
        else:
            held = self._partitions.tolist()
            takes_part = np.array([who.takes_part(p) for p in held], bool)
            pairs = zip(held, takes_part.tolist(), strict=True)
            available = np.array([member and who.available(server_round, p) for p, member in pairs], bool)
        if self.busy:
            available = available & np.array([node not in self.busy for node in self._ordered], bool)
        return self._nodes[takes_part], self._nodes[available]

    def answering(self, who: Participation, server_round: int, nodes: list[int], number: int) -> list[int]:
        """Return the nodes that will answer; if times are simulated, the first ``number`` of them."""
        asked = list(map(self.partition, nodes))
        if isinstance(who, KnowsWhoIsFirst):
            answers = who.first_answers(server_round, np.array(asked), number).tolist()
        else:
            answers = [who.answers(server_round, one) for one in asked]
        return [node for node, there in zip(nodes, answers, strict=True) if there]

    def _learn_partitions(self, grid: Grid, nodes: list[int]) -> None:
        new = [node for node in nodes if node not in self._claims]
        if isinstance(grid, KnowsPartitions):
            self._claims.update({node: grid.partition_of_node(node) for node in new})
        elif new:
            self._query(grid, new)
            if silent := [
                f"node {node}" for node in new if node in self._silent and node not in self._warned
            ]:
                LOGGER.warning(
                    "%s connected, and did not say within %g s which partition it holds; it is asked again "
                    "before each round",
                    _are(silent),
                    self.query_timeout,
                )
                self._warned |= self._silent
        held = {self._partition_ids[node] for node in nodes if node in self._partition_ids}
        for node in sorted(set(nodes) & self._claims.keys() - self._partition_ids.keys()):
            claim = self._claims[node]
            if claim in held:
                LOGGER.info("node %d claims partition %d, which another connected node holds", node, claim)
            elif claim is not None:
                before = self.name(node)
                self._partition_ids[node] = claim
                held.add(claim)
                if before in self._connected:
                    LOGGER.info("%s holds partition %d", before, claim)
                    self._connected[self.name(node)] = self._connected.pop(before)

    def _log_changes(self, nodes: list[int]) -> None:
        now = {self.name(node): self.rank(node) for node in nodes}
        gone = sorted(self._connected.keys() - now.keys(), key=lambda name: self._connected[name])
        new = sorted(now.keys() - self._connected.keys(), key=lambda name: now[name])
        if gone:
            LOGGER.warning("%s no longer connected", _are(gone))
        if new and self._connected:
            LOGGER.info("%s connected", _are(new))
        self._connected = now

    def _query(self, grid: Grid, nodes: list[int]) -> None:
        self._silent |= set(nodes)

        def read(content: RecordDict) -> int | None:
            held = record_of(content, PARTITION, ConfigRecord).get(PARTITION_ID)
            if held is None or (type(held) is int and 0 <= held < MAX_PARTITIONS):
                return held
            raise ReplyRefused(f"{PARTITION_ID!r} is {held!r}, not a whole number in [0, 2^53)")

        content = RecordDict()
        messages = [Message(content, node, QUERY_PARTITION_ID) for node in nodes]
        replies = grid.send_and_receive(messages, timeout=self.query_timeout)
        arrived = (reply for reply in replies if not (reply.has_error() and reply.error.code in NOT_ARRIVED))
        for node, held in answers(messages, arrived, read):
            self._silent.discard(node)
            if isinstance(held, ReplyRefused):
                LOGGER.warning("node %d does not say which partition it holds: %s", node, held)
            self._claims[node] = None if isinstance(held, ReplyRefused) else held


def _are(names: list[str]) -> str:
    """Return the subject and verb of a log line: at most `MAX_NAMES` names."""
    if len(names) > MAX_NAMES:
        return f"{', '.join(names[:MAX_NAMES])} and {len(names) - MAX_NAMES} more are"
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"


def sample_size(count: int, fraction: float, minimum: int) -> int:
    """Return ``max(minimum, floor(fraction * count))``, at most ``count``.

    As in Flower, ``fraction`` is rounded down; the small term keeps ``0.29 * 100`` at 29.
    """
    return min(count, max(minimum, int(count * fraction + 1e-9)))


def sample(nodes: Sequence[int] | NDArray, size: int, seed: Iterable[int]) -> list[int]:
    """Return a reproducible sample of ``size`` nodes, in the order given."""
    chosen = np.random.default_rng(list(seed)).choice(len(nodes), size=size, replace=False)
    return [nodes[i] for i in sorted(chosen)]


def log_absentees(server_round: int, connected: int, available: int, sampled: int, training: int) -> None:
    """Log how many nodes are unavailable or will not answer; a warning if no node trains."""
    if available == connected and training == sampled:
        return
    unavailable = f"{connected - available} of {connected} nodes unavailable"
    silent = f"{sampled - training} of {sampled} sampled will not answer"
    level = logging.INFO if training else logging.WARNING
    unchanged = "" if training else ": the model is unchanged"
    LOGGER.log(level, "round %d, train: %s, %s%s", server_round, unavailable, silent, unchanged)
