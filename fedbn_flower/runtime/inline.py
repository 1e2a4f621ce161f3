"""Every client in this process, one after the other: for debugging."""

from flwr.app import Message, UserConfig
from flwr.clientapp import ClientApp

from clients import ClientState

from .grid import FIRST_NODE_ID, Answer, LocalGrid, answer, node_context


class InlineGrid(LocalGrid):
    """Runs the ClientApp when a reply is asked for."""

    def __init__(self, app: ClientApp, num_clients: int, run_config: UserConfig) -> None:
        super().__init__(num_clients)
        self._app = app
        self._contexts = {
            FIRST_NODE_ID + i: node_context(i, num_clients, run_config) for i in range(num_clients)
        }

    def client_state(self, partition_id: int) -> bytes:
        return ClientState(self._contexts[FIRST_NODE_ID + partition_id].state).to_bytes()

    def restore_client(self, partition_id: int, state: bytes) -> None:
        ClientState(self._contexts[FIRST_NODE_ID + partition_id].state).from_bytes(state)

    def submit(self, message: Message) -> Answer:
        context = self._contexts[message.metadata.dst_node_id]
        return lambda _: answer(self._app, message, context)
