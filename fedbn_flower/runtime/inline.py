"""Every client in this process, one after the other: for debugging."""

from collections.abc import Iterator

from flwr.app import Message, UserConfig

from clients import ContextStore, Groups

from ..client_app import answer_all
from .grid import LocalGrid, in_groups, node_context, partition_of


class InlineGrid(LocalGrid):
    """Runs the ClientApp when a reply is asked for.

    Parameters
    ----------
    num_clients : int
        One virtual node each.
    run_config : UserConfig
        The run's keys and values.
    cohort : int
        How many clients train in lockstep; 1 for one after the other.
    """

    def __init__(self, num_clients: int, run_config: UserConfig, cohort: int = 1) -> None:
        super().__init__(num_clients, run_config)
        self._cohort = cohort
        self._contexts = [node_context(i, num_clients, run_config) for i in range(num_clients)]

    def client_memory(self, partition_id: int) -> Groups:
        return ContextStore(self._contexts[partition_id].state).groups()

    def restore_memory(self, partition_id: int, groups: Groups) -> None:
        ContextStore(self._contexts[partition_id].state).save(groups)

    def work(self, messages: list[Message], timeout: float | None) -> Iterator[Message]:
        for group in in_groups(messages, self._cohort):
            yield from answer_all(group, [self._contexts[partition_of(message)] for message in group])
