"""Clients in this process, and on Ray's workers, at once or once these pay."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flwr.app import ArrayRecord, Message

from fedbn_flower.clients import Groups
from fedbn_flower.clients.problems.evaluation import Sums

from ...core.errors import RunFailed, UserError
from ...site.adapter import round_of
from ..grid import InlineGrid, LocalGrid
from ..pools import Work
from .background import BackgroundPool

if TYPE_CHECKING:
    from .grid import RayGrid
    from .pool import RayPool

LOGGER = logging.getLogger("flwr.fedbn")

START = 10.0
"""Seconds that workers have to save: on two cores they take 8 to start, and slow this process meanwhile."""
WARM_UP = 5.0
"""Seconds after which a run's first round says how long the others take."""


@dataclass
class Workload:
    """The clients' work of a run, in seconds of one process, as far as it is known.

    Parameters
    ----------
    rounds : int
        Number of the run's last round.
    """

    rounds: int
    server_round: int = 0
    first_round: int = 0
    seconds: float = 0.0
    """Of this round so far."""
    phase: float = 0.0
    """Of this phase so far."""
    a_round: float = 0.0
    """Of the last round that was complete; 0 before the second of this process is."""

    def begin_phase(self, server_round: int) -> None:
        """Begin a phase of this round."""
        self.phase = 0.0
        if server_round != self.server_round:
            if self.server_round != self.first_round:
                self.a_round = self.seconds
            self.first_round = self.first_round or server_round
            self.server_round, self.seconds = server_round, 0.0

    def add(self, seconds: float) -> None:
        """Add the seconds of some of the phase's clients."""
        self.phase += seconds
        self.seconds += seconds

    def left(self, done: int, groups: int, later_runs: int = 0) -> float:
        """Return the seconds that are left, at least, once ``done`` of the phase's ``groups`` are.

        ``later_runs`` are runs like this one that will have the same workers.

        A first round that is short says nothing: most of it is what happens once in a process.
        """
        if self.server_round == self.first_round and self.seconds < WARM_UP:
            return 0.0
        phase = self.phase / done * (groups - done)
        rounds = self.rounds - self.server_round + later_runs * self.rounds
        return phase + rounds * (self.a_round or self.seconds + phase)


class AutoGrid(LocalGrid):
    """Runs clients in this process until the workers that pay have started, and then on these.

    Replies are the same bits wherever they are made. So the run moves as soon as it can, also in the middle
    of a phase, and takes the clients' memories along. Workers pay if they save more than `START` seconds.

    Parameters
    ----------
    inline : InlineGrid
        Runs clients here.
    pool : BackgroundPool
        The workers.
    ray_grid : callable
        Makes the grid that runs clients on the workers.
    rounds, may_move
        As of `Work`.
    """

    def __init__(
        self,
        inline: InlineGrid,
        pool: BackgroundPool,
        ray_grid: "Callable[[RayPool], RayGrid]",
        rounds: int,
        may_move: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(inline.num_clients, inline.run_config, inline.cohort, inline.sums, inline.clients)
        pool.runs_left -= 1
        self._inline = inline
        self._pool = pool
        self._ray_grid = ray_grid
        self._ray: RayGrid | None = None
        self._work = Workload(rounds)
        self._round = 0
        self._may_move = may_move

    def plan(self, server_round: int, rounds: int) -> None:
        self._round, self._work.rounds = server_round, rounds

    @property
    def place(self) -> Mapping[str, Any]:
        return (self._ray or self._inline).place

    def evaluate_in_shares(
        self, arrays: ArrayRecord, splits: str, classes: int
    ) -> Mapping[str, list[Sums]] | None:
        return (self._ray or self._inline).evaluate_in_shares(arrays, splits, classes)

    def client_memory(self, partition_id: int) -> Groups:
        return (self._ray or self._inline).client_memory(partition_id)

    def restore_memories(self, saved: Callable[[int], Groups]) -> None:
        self._inline.restore_memories(saved)

    def work(self, messages: list[Message], timeout: float | None) -> Iterator[Message]:
        if ray := self._moved():
            yield from ray.work(messages, timeout)
        elif not messages or not self.clients.remembers(messages[0]):
            yield from self._inline.work(messages, timeout)
        else:
            yield from self._work_here(messages, timeout)

    def _work_here(self, messages: list[Message], timeout: float | None) -> Iterator[Message]:
        """Run groups of clients here, and those that are left on the workers once they are there."""
        groups, summed = self.groups_of(messages)
        self._work.begin_phase(self._round or round_of(messages[0]))
        for done, group in enumerate(groups, start=1):
            started = time.monotonic()
            replies = self._inline.answer(group, summed)
            self._work.add(time.monotonic() - started)
            self._consider(done, groups)
            yield from replies
            if done < len(groups) and (ray := self._moved()):
                yield from ray.work_in_groups(groups[done:], summed, timeout)
                return

    def _consider(self, done: int, groups: Sequence[list[Message]]) -> None:
        """Start the workers in the background if they pay."""
        if self._pool.started or not self._may_move():
            return
        left = self._work.left(done, len(groups), self._pool.runs_left)
        saved = left * (1 - 1 / min(self._pool.workers, len(groups)))
        if saved > START:
            self._pool.start(f"they save some {saved:.0f} of {left:.0f} s that are left")

    def _moved(self) -> "RayGrid | None":
        """The grid on the workers, if these have started; the first time the run moves to them."""
        if self._ray is None and (pool := self._pool.ready):
            try:
                ray = self._ray_grid(pool)
            except (UserError, RunFailed) as error:  # as of an object that cannot be sent
                self._pool.give_up(error)
                return None
            ray.first_state = self._inline.client_state
            self._ray = ray
            LOGGER.info(
                "from round %d on, clients run on %d Ray workers", self._work.server_round, len(pool.workers)
            )
        return self._ray


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
