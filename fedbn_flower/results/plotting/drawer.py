"""Figures of a run that another process draws, while this one imports PyTorch, trains and writes tables.

It has Matplotlib imported when the first figure is asked for, and ends with the run. What it cannot draw is
drawn here: a figure is the same wherever it is drawn.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from multiprocessing import Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.files import write_atomically

if TYPE_CHECKING:
    from ..run_reader import Run
    from .svg_figure import InlineFigure

NAME = "of-the-drawing-process"
"""How ids begin until a page names its figure."""
PROCESS = f"{__package__}.drawing_process"
CORES = 2
"""With fewer, a further process gains nothing."""


class Job(NamedTuple):
    """A figure to draw: written as PNG if there is a path, as the text of an SVG otherwise."""

    function: Callable[..., "InlineFigure | None"]
    arguments: tuple[Any, ...]
    path: Path | None = None

    def done(self) -> str | None:
        """Draw; return the SVG, or None if there is no figure or it is written."""
        figure = self.function(*self.arguments)
        if figure is None or not self.path:
            return figure.as_svg(NAME) if figure else None
        if figure.axes:
            write_atomically(self.path, figure.as_png())
        return None


class DrawnApart:
    """A figure that a page waits for; it is false if there is nothing to draw."""

    def __init__(self, job: Job, answer: "Future[str | None]") -> None:
        self.job = job
        self.answer = answer

    def __bool__(self) -> bool:
        return self.svg() is not None

    def as_svg(self, name: str) -> str:
        """Return the figure as an element of a page, see `InlineFigure.as_svg`."""
        return (self.svg() or "").replace(f"{NAME}-", f"{name}-")

    def svg(self) -> str | None:
        """Wait for the drawing process; draw what it could not."""
        try:
            return self.answer.result()
        except Exception:  # it has died, could not be sent it, or had the mistake that is raised here
            self.answer = Future()
            self.answer.set_result(self.job.done())
            return self.answer.result()


class Drawer:
    """A process that draws one figure after another."""

    def __init__(self) -> None:
        self.connection, child_end = Pipe()
        with child_end:
            number = child_end.fileno()
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", PROCESS, str(number)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.thread = ThreadPoolExecutor(1, "drawer")
        self.files: list[DrawnApart] = []
        self.of_run: dict[tuple[object, ...], DrawnApart] = {}

    def draw(self, job: Job) -> DrawnApart:
        """Return the figure; the process draws it meanwhile."""
        return DrawnApart(job, self.thread.submit(self._ask, job))

    def _ask(self, job: Job) -> str | None:
        self.connection.send(job)
        answer: tuple[str | None, str] = self.connection.recv()
        svg, failed = answer
        if failed:
            raise RuntimeError(failed)
        return svg

    def close(self) -> None:
        """End the process, whatever it is drawing."""
        self.process.kill()
        self.process.wait()
        self.thread.shutdown(cancel_futures=True)
        self.connection.close()


DRAWER: ContextVar[Drawer | None] = ContextVar("drawer", default=None)
"""That of the run in this context."""


@contextmanager
def drawing_apart() -> Iterator[None]:
    """Have a run's figures drawn in another process, where there is a core for it."""
    drawer = None
    if (os.cpu_count() or 1) >= CORES:
        with suppress(OSError):  # no further process can be started
            drawer = Drawer()
    if drawer is None:
        yield
        return
    token = DRAWER.set(drawer)
    try:
        yield
    finally:
        DRAWER.reset(token)
        drawer.close()


def drawn(
    function: Callable[..., "InlineFigure | None"], *arguments: Any
) -> "InlineFigure | DrawnApart | None":
    """Return the figure that a module's function draws of some arguments."""
    drawer = DRAWER.get()
    return drawer.draw(Job(function, arguments)) if drawer else function(*arguments)


def drawn_of_run(
    function: Callable[..., "InlineFigure | None"], run: "Run", *arguments: str
) -> "InlineFigure | DrawnApart | None":
    """Return the figure of a run; one that has been asked for, if it was."""
    drawer = DRAWER.get()
    if not drawer:
        return function(run, *arguments)
    key = function, run.folder, *arguments
    if key not in drawer.of_run:
        drawer.of_run[key] = drawer.draw(Job(function, (run, *arguments)))
    return drawer.of_run[key]


def begun(path: Path, function: Callable[..., "InlineFigure | None"], *arguments: Any) -> bool:
    """Have a figure written as PNG by the drawing process, if there is one."""
    if drawer := DRAWER.get():
        drawer.files.append(drawer.draw(Job(function, arguments, path)))
    return drawer is not None


def finish_files() -> None:
    """Wait until the figures that were begun are written."""
    if drawer := DRAWER.get():
        for figure in drawer.files:
            figure.svg()
        drawer.files.clear()
