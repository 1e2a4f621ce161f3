"""``selection``: who trains, by the data and the losses of the clients."""

from collections.abc import Callable

from fedbn_flower.strategies.messages.nodes import NodeSelection

from ..records.events import RunInfo
from .base import Extension, Moment


class ClientSelection(Extension):
    """Gives the rule the run's selection of clients.

    Parameters
    ----------
    run : RunInfo
        The run.
    of_round : callable
        Returns how the clients of a round are selected; None for a uniform sample.
    """

    def __init__(self, run: RunInfo, of_round: Callable[[Moment], NodeSelection | None]) -> None:
        super().__init__(run)
        self.of_round = of_round

    def prepare(self, moment: Moment) -> None:
        moment.rule.node_selection = self.of_round(moment)
