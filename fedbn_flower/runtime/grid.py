"""What our own Grids share: virtual nodes, message ids, and answers in message order."""

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import count

from flwr.app import Context, Error, Message, RecordDict, UserConfig
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

RUN_ID = 1
# Message.__init__ asks Flower for the identity of its process, which it has no public call to set.
FIRST_NODE_ID = SUPERLINK_NODE_ID + 1

Answer = Callable[[float | None], Message | None]
"""Wait up to so many seconds (None: for ever) for the reply; None if it is not there by then."""


def node_context(partition_id: int, num_partitions: int, run_config: UserConfig) -> Context:
    """A fresh Context of the virtual node that holds this partition."""
    return Context(
        run_id=RUN_ID,
        node_id=FIRST_NODE_ID + partition_id,
        node_config={"partition-id": partition_id, "num-partitions": num_partitions},
        state=RecordDict(),
        run_config=run_config,
    )


def answer(app: Callable[[Message, Context], Message], message: Message, context: Context) -> Message:
    """The app's reply, or an error reply that says what it raised."""
    try:
        return app(message, context)
    except Exception as error:  # a client's failure is an answer, never the end of the runtime
        reason = f"{type(error).__name__}: {error}"
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


class LocalGrid(Grid):
    """A Grid whose nodes are numbered by partition: node ``FIRST_NODE_ID + partition``.

    Subclasses implement `submit`.
    """

    def __init__(self, num_clients: int) -> None:
        self.num_clients = num_clients
        self._ids = count()
        self._answers: dict[str, Answer] = {}
        identify_process()

    @abstractmethod
    def submit(self, message: Message) -> Answer:
        """Start work on one message."""

    @abstractmethod
    def client_state(self, partition_id: int) -> bytes:
        """A client's memory, as `ClientState.to_bytes` gives it."""

    @abstractmethod
    def restore_client(self, partition_id: int, state: bytes) -> None:
        """Put a client's memory back."""

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

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            message_id = f"message-{next(self._ids)}"
            message.metadata.__dict__["_message_id"] = message_id  # as Flower's own grids set it
            self._answers[message_id] = self.submit(message)
            ids.append(message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = []
        for message_id in message_ids:
            if message_id in self._answers and (reply := self._answers[message_id](0)):
                del self._answers[message_id]
                replies.append(reply)
        return replies

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """All messages are sent at once; replies stream back in the messages' order."""
        return self._stream(list(self.push_messages(messages)), timeout)

    def _stream(self, message_ids: list[str], timeout: float | None) -> Iterator[Message]:
        deadline = None if timeout is None else time.monotonic() + timeout
        for message_id in message_ids:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            reply = self._answers.pop(message_id)(left)
            if reply is not None:
                yield reply


def identify_process() -> None:
    """Give this process the identity that Message asks for (not a public call of Flower's)."""
    TaskIdentity.run_id = RUN_ID
    TaskIdentity.node_id = SUPERLINK_NODE_ID
    TaskIdentity.task_id = 1
