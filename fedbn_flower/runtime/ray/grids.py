"""The grid of a run on Ray's workers."""

from typing import TYPE_CHECKING

from ..grid import LocalGrid
from ..inline import InlineGrid
from ..pools import Work
from .auto_grid import AutoGrid
from .background import BackgroundPool

if TYPE_CHECKING:
    from .grid import RayGrid
    from .pool import RayPool


def grid_on(pool: "RayPool | BackgroundPool", inline: InlineGrid, work: Work) -> LocalGrid:
    """Return the grid on workers; on those that start once they pay, clients begin in this process.

    Raises
    ------
    UserError
        See `runtime.pools.grid_on`.
    """

    def ray_grid(workers: "RayPool") -> "RayGrid":
        from .grid import RayGrid

        grid = RayGrid(
            workers,
            inline.num_clients,
            inline.run_config,
            inline.cohort,
            inline.sums,
            work.remembers,
            work.examples,
            inline.clients,
            work.evaluated_at_once,
        )
        if work.data:
            workers.check_data(*work.data)
        return grid

    if isinstance(pool, BackgroundPool):
        return AutoGrid(inline, pool, ray_grid, work.rounds, work.may_move)
    return ray_grid(pool)
