"""Check how many nodes are connected."""

import time

from flwr.serverapp import Grid

from fedbn_flower.strategies import PseudoGradientStrategy, TooFewNodes

from ..core.errors import not_allowed
from .exchange import IN_THIS_PROCESS, waits_of

REGISTERING = 5.0
"""Seconds in which Flower has registered a further node that it simulates, if there is one."""


def check_nodes(strategy: PseudoGradientStrategy, grid: Grid, expected: int, concurrency: int = 0) -> None:
    """Wait for the run's nodes; refuse more of them than ``num-clients``.

    Only ``concurrency`` are waited for if so many train at once: the others may come later.

    Raises
    ------
    UserError
        When there are more; when Flower simulates fewer.
    TooFewNodes
        When they are too few in time.
    """
    reason = "concurrency" if concurrency else "num-clients"
    if (wanted := concurrency or expected) > (found := _simulated(grid, wanted)):
        as_many = f"--federation-config num-supernodes={wanted}"
        raise not_allowed(reason, wanted, f"{found}, the number of simulated SuperNodes; or give {as_many}")
    try:
        nodes = strategy.node_directory.connected(grid, wanted, reason)
    except TooFewNodes as error:
        why = "the log of a SuperNode that is missing says why, such as a clock that is off"
        raise TooFewNodes(f"{error}; {why}") from None
    if len(nodes) > expected:
        raise not_allowed("num-clients", expected, f"{len(nodes)}, the number of SuperNodes (num-supernodes)")


def _simulated(grid: Grid, wanted: int) -> int:
    """Return how many nodes Flower simulates, up to so many: they register while the server starts.

    Of real nodes it is ``wanted``: they may connect at any time.
    """
    if waits_of(grid) != IN_THIS_PROCESS:
        return wanted
    before, found = -1, len(list(grid.get_node_ids()))
    while before < found < wanted:
        time.sleep(REGISTERING)
        before, found = found, len(list(grid.get_node_ids()))
    return found
