"""Run every client in this process, one after the other."""

from collections.abc import Iterator
from functools import cached_property

from flwr.app import Context, Message, RecordDict

from fedbn_flower.clients import ContextStore, Groups

from .grid import LocalGrid, node_context, partition_of


class InlineGrid(LocalGrid):
    """Runs clients as replies are read."""

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
