"""Legacy servers on our grids: their clients work on this thread, and in order."""

from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

from ..core.private import calls_of_legacy_servers
from .app_grid import AppGrid
from .callers import together


class Call(Future):
    """A call that `wait` makes."""

    def __init__(self, order: int, call: Callable[[], Any]) -> None:
        super().__init__()
        self.order = order
        self.call = call


class Calls(Executor):
    """Keeps the calls of a phase until they are waited for."""

    def __init__(self, max_workers: int | None = None) -> None:
        self._orders = count()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Call:
        """Keep a call."""
        return Call(next(self._orders), partial(fn, *args, **kwargs))


@contextmanager
def legacy_servers_on(grid: AppGrid) -> Iterator[None]:
    """Have legacy servers ask all clients of a phase at once; replies are in the order of the clients."""

    def wait(fs: Set[Call], timeout: float | None = None) -> tuple[Sequence[Future], set[Future]]:
        calls = sorted(fs, key=lambda one: one.order)
        for call, outcome in zip(
            calls, together([one.call for one in calls], grid.send_and_receive), strict=True
        ):
            if isinstance(outcome, BaseException):
                call.set_exception(outcome)
            else:
                call.set_result(outcome)
        return calls, set()

    with calls_of_legacy_servers(Calls, wait):
        yield
