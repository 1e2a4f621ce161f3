"""``selection``: which of the available clients train in a round, and how many do."""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

from fedbn_flower.strategies import Selection as Choice
from fedbn_flower.strategies.aggregation.buffers import AsynchronousProtocol
from fedbn_flower.strategies.messages.nodes import NodeSelection

from ..core.errors import Conflict
from ..core.ground.settings import KeyGroup, setting
from ..core.input_spec import InputSpec
from ..names import FORMS, SELECTION, made
from ..records.events import RunInfo
from .annex_keys import asynchronous
from .base import Moment, ServerHook
from .holdout import num_training

KEY = SELECTION.key
UNIFORM = "uniform"
SELECTIONS = f"uniform, by-size, power-of-choice:D with D candidates, or {FORMS}"


class SelectionKeys(KeyGroup):
    """Training"""

    after = "fraction-train"

    selection: Annotated[str, SELECTIONS] = setting(
        UNIFORM, description="which clients train in a round: drawn uniformly, by-size, or power-of-choice:D"
    )


def selection_named(text: str) -> Choice:
    """Return the selection that ``NAME``, ``NAME:ARGUMENT`` or ``FILE.py:NAME`` names.

    Raises
    ------
    UserError
        When there is none of that name, or its argument is not allowed.
    """
    return made(SELECTION, text)


def clients_a_round(clients: int, share: float, reference: str, protocol: AsynchronousProtocol | None) -> int:
    """Return how many clients train in a round: the size of a buffer; 1 with ``reference`` ``pooled``.

    Parameters
    ----------
    clients : int
        The number of clients that can train.
    share : float
        ``fraction-train``.
    reference : str
        The key.
    protocol : AsynchronousProtocol, optional
        The run's; None if it is ``sync``.
    """
    if protocol:
        return protocol.size
    if reference == "pooled":
        return 1
    return max(1, int(clients * share + 1e-9))


def sampled(config: Mapping[str, Any]) -> int:
    """Return `clients_a_round` of a configuration by key."""
    share, reference = config["fraction-train"], config["reference"]
    return clients_a_round(num_training(config), share, reference, asynchronous(config))


class Selection(ServerHook):
    """Gives the rule the run's selection of clients.

    Parameters
    ----------
    run : RunInfo
        The run.
    of_round : callable
        Returns how the clients of a round are selected; None for a uniform sample.
    """

    place = 40

    def __init__(self, run: RunInfo, of_round: Callable[[Moment], NodeSelection | None]) -> None:
        super().__init__(run)
        self.of_round = of_round

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        selection_named(text := config[KEY])
        if text != UNIFORM and InputSpec.parse(config["dataset"]):
            why = "where only SuperNodes have data: the server does not know the clients' sizes"
            yield Conflict(KEY, text, f"{UNIFORM!r} {why}")

    def prepare(self, moment: Moment) -> None:
        moment.rule.node_selection = self.of_round(moment)
