"""Check how many nodes are connected."""

from flwr.serverapp import Grid

from fedbn_flower.strategies import PseudoGradientStrategy, TooFewNodes

from ...core.errors import not_allowed


def check_nodes(strategy: PseudoGradientStrategy, grid: Grid, expected: int, concurrency: int = 0) -> None:
    """Wait for the run's nodes; refuse more of them than ``num-clients``.

    Only ``concurrency`` are waited for if so many train at once: the others may come later.

    Raises
    ------
    UserError
        When there are more.
    TooFewNodes
        When they are too few in time.
    """
    reason = "concurrency" if concurrency else "num-clients"
    try:
        nodes = strategy.node_directory.connected(grid, concurrency or expected, reason)
    except TooFewNodes as error:
        why = "the log of a SuperNode that is missing says why, such as a clock that is off"
        raise TooFewNodes(f"{error}; {why}") from None
    if len(nodes) > expected:
        raise not_allowed("num-clients", expected, f"{len(nodes)}, the number of SuperNodes (num-supernodes)")
