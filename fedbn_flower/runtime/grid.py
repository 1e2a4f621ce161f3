"""The project's Grids: virtual nodes, message ids, groups of messages answered together, in this process."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count, groupby
from typing import Any, Protocol

from flwr.app import ArrayRecord, Context, Message, MessageType, RecordDict, UserConfig
from flwr.serverapp import Grid

from fedbn_flower.clients import ContextStore, Groups
from fedbn_flower.clients.problems.evaluation import Sums
from fedbn_flower.strategies.aggregation.fold import GROUP, groups

from ..core import private
from ..core.private import SUPERLINK_NODE_ID, Run
from ..site.adapter import FedbnClients
from ..site.cases import SimulatedContext

CALLS = 4  # as many a process, at least, where clients can be given out one by one
RUN_ID = 1
FIRST_NODE_ID = SUPERLINK_NODE_ID + 1


def node_context(
    partition_id: int, num_partitions: int, run_config: UserConfig, state: RecordDict | None = None
) -> Context:
    """The Context of the virtual node that holds this partition; with an empty state if none is given."""
    return SimulatedContext(
        run_id=RUN_ID,
        node_id=FIRST_NODE_ID + partition_id,
        node_config={"partition-id": partition_id, "num-partitions": num_partitions},
        state=RecordDict() if state is None else state,
        run_config=run_config,
    )


def partition_of(message: Message) -> int:
    """The partition that the message goes to."""
    return message.metadata.dst_node_id - FIRST_NODE_ID


class ClientSide(Protocol):
    """Answers messages in whatever process a grid has for it; Ray's workers get a pickled copy."""

    prints: bool
    """Whether what is printed while it answers is for the user. Workers then send it with the replies."""

    def remembers(self, message: Message) -> bool:
        """Return whether a message is answered with the memory of its client."""

    def answer(self, messages: Sequence[Message], contexts: Sequence[Context], summed: bool) -> list[Message]:
        """Return the replies to messages of one content; a client that fails is answered for by an error.

        What a client keeps is in the ``state`` of its context afterwards. With ``summed`` the replies carry
        one sum of the clients' models.
        """


class LocalGrid(Grid):
    """A Grid whose nodes are numbered by partition: node ``FIRST_NODE_ID + partition``.

    Replies are made as they are read. Subclasses implement `work` and keep the clients' memories.

    Parameters
    ----------
    num_clients : int
        One virtual node each.
    run_config : UserConfig
        The run's keys and values.
    cohort : int
        How many clients train in lockstep; 1 for one after the other.
    sums : bool
        Whether the server's rule takes sums of answers: those of a group are then summed where they were
        trained, where that costs no process its work.
    clients : ClientSide, optional
        Who answers the messages; by default this project's clients.
    """

    def __init__(
        self,
        num_clients: int,
        run_config: UserConfig,
        cohort: int = 1,
        sums: bool = False,
        clients: ClientSide | None = None,
    ) -> None:
        self.num_clients = num_clients
        self.run_config = run_config
        self.cohort = cohort
        self.sums = sums
        self.clients = clients or FedbnClients()
        self._ids = count()
        self._pushed: dict[str, Message] = {}
        self.first_state: Callable[[int], RecordDict] = lambda partition: RecordDict()
        """The ``Context.state`` that a partition's client begins with."""
        identify_process()

    @abstractmethod
    def work(self, messages: list[Message], timeout: float | None) -> Iterator[Message]:
        """The replies as they come, in any order; those not there after ``timeout`` seconds are left out."""

    def plan(self, server_round: int, rounds: int) -> None:
        """Say of which round the next phase is, and the number of the last one, where messages do not."""

    @property
    def place(self) -> Mapping[str, Any]:
        """Where clients run: the ``backend``, and the number of ``workers`` if it has some."""
        return {"backend": "inline"}

    def evaluate_in_shares(
        self, arrays: ArrayRecord, splits: str, classes: int
    ) -> Mapping[str, list[Sums]] | None:
        """See `EvaluatesInShares`."""
        return None

    @abstractmethod
    def client_memory(self, partition_id: int) -> Groups:
        """What a client remembers."""

    def restore_memories(self, saved: Callable[[int], Groups]) -> None:
        """Have every client begin with what this gives by partition, once it is needed."""

        def state(partition: int) -> RecordDict:
            store = ContextStore()
            store.save(saved(partition))
            return store.state

        self.first_state = state

    def set_run(self, run: Run) -> None:
        raise RuntimeError("a local grid serves one run, which it makes itself")

    @property
    def run(self) -> Run:
        return Run.create_empty(RUN_ID)

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return range(FIRST_NODE_ID, FIRST_NODE_ID + self.num_clients)

    def partition_of_node(self, node_id: int) -> int:
        """Return the partition that the node holds."""
        return node_id - FIRST_NODE_ID

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            message_id = f"message-{next(self._ids)}"
            private.set_message_id(message, message_id)
            self._pushed[message_id] = message
            ids.append(message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return list(self.work_on(message_ids, None))

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Replies stream back as they come."""
        return self.work_on(self.push_messages(messages), timeout)

    def work_on(self, message_ids: Iterable[str], timeout: float | None) -> Iterator[Message]:
        """The replies to messages that were pushed, as they come; see `work`."""
        known = [message_id for message_id in message_ids if message_id in self._pushed]
        return self.work([self._pushed.pop(message_id) for message_id in known], timeout)

    def groups_of(self, messages: list[Message], processes: int = 1) -> tuple[list[list[Message]], bool]:
        """The messages that are answered together, and whether the models of each group are summed."""
        summed = self.to_be_summed(messages, processes)
        return summed or list(in_groups(messages, self.cohort)), bool(summed)

    def to_be_summed(self, messages: list[Message], processes: int) -> list[list[Message]]:
        """The groups of a phase's messages, if each is to be summed where it is trained; else none.

        Clients that train one by one are given out in groups only if so many cost no process its work.
        """
        contents = {id(message.content) for message in messages}
        training = bool(messages) and messages[0].metadata.message_type == MessageType.TRAIN
        found = list(in_groups(messages, GROUP)) if self.sums and training and len(contents) == 1 else []
        together = self.cohort > 1 or processes == 1
        return found if together or len(found) >= CALLS * processes else []


def in_groups(messages: list[Message], size: int) -> Iterator[list[Message]]:
    """Groups of consecutive messages of one and the same content, each content's by `groups`."""
    for _, same in groupby(messages, key=lambda message: id(message.content)):
        together = list(same)
        for places in groups(len(together), size):
            yield together[places.start : places.stop]


def identify_process() -> None:
    """Give this process the identity that Message asks for."""
    private.identify_process(RUN_ID)


class InlineGrid(LocalGrid):
    """Runs every client in this process, one after the other, as replies are read."""

    @cached_property
    def _contexts(self) -> dict[int, Context]:
        return {}

    def client_memory(self, partition_id: int) -> Groups:
        return ContextStore(self.client_state(partition_id)).groups()

    def client_state(self, partition_id: int) -> RecordDict:
        """What a client has in its ``Context.state``."""
        return self._context(partition_id).state

    def work(self, messages: list[Message], timeout: float | None) -> Iterator[Message]:
        groups, summed = self.groups_of(messages)
        for group in groups:
            yield from self.answer(group, summed)

    def answer(self, group: list[Message], summed: bool) -> list[Message]:
        """The replies of clients that train together or whose models are summed; see `ClientSide`."""
        return self.clients.answer(group, [self._context_for(message) for message in group], summed)

    def _context_for(self, message: Message) -> Context:
        partition = partition_of(message)
        if not self.clients.remembers(message):
            return node_context(partition, self.num_clients, self.run_config)
        return self._context(partition)

    def _context(self, partition: int) -> Context:
        if partition not in self._contexts:
            state = self.first_state(partition)
            self._contexts[partition] = node_context(partition, self.num_clients, self.run_config, state)
        return self._contexts[partition]
