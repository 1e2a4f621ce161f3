"""Every client in this process, one after the other: for debugging."""

from collections.abc import Iterator

from flwr.app import Message, UserConfig

from fedbn_flower.clients import ContextStore, Groups

from ..client_app import answer_all
from .grid import LocalGrid, in_groups, node_context, partition_of


class InlineGrid(LocalGrid):
    """Runs the ClientApp when a reply is asked for."""

    def __init__(self, num_clients: int, run_config: UserConfig, cohort: int = 1, sums: bool = False) -> None:
        super().__init__(num_clients, run_config, cohort, sums)
        self._contexts = [node_context(i, num_clients, run_config) for i in range(num_clients)]

    def client_memory(self, partition_id: int) -> Groups:
        return ContextStore(self._contexts[partition_id].state).groups()

    def restore_memory(self, partition_id: int, groups: Groups) -> None:
        ContextStore(self._contexts[partition_id].state).save(groups)

    def work(self, messages: list[Message], timeout: float | None) -> Iterator[Message]:
        summed = self.to_be_summed(messages, 1)
        for group in summed or in_groups(messages, self.cohort):
            contexts = [self._contexts[partition_of(message)] for message in group]
            yield from answer_all(group, contexts, bool(summed))
