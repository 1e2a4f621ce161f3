"""What a person sees while a run goes on, and at its end."""

import hashlib
import re
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from flwr.app import MessageType
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ..config.help import as_text
from ..config.registry import short
from ..config.run_config import RunConfig
from ..records.events import Observer, RoundResult, RunInfo
from ..records.metrics import shown
from .summary import LISTED_CLIENTS, NO_FIGURES

WINDOW = 600.0  # seconds from which the time left is estimated
LONGEST_VALUE = 60  # characters of a folder's name
FIRST = "waiting for the first client of the first round"
PAUSE = 0.1  # seconds between two pictures of a bar in a notebook


def cell_name(config: RunConfig, keys: Iterable[str] = ()) -> str:
    """A run's place in a sweep, a folder's name: ``fedyogi-fedbn-sgd-server-lr=0.01-seed0`` with the further
    keys that the sweep is about and the run has; ``pooled-seed0`` of a reference."""
    names = list(map(short, (config.strategy, config.client, config.objective)))
    if config.reference != "none":
        names = [config.reference]
    told = told_apart(config, (key for key in keys if key != "reference"))
    return "-".join([*names, *(f"{key}={_safe(value)}" for key, value in told.items()), f"seed{config.seed}"])


def told_apart(config: RunConfig, keys: Iterable[str]) -> dict[str, str]:
    """The values of these keys as text, of those that the run has."""
    values = config.to_user_config()
    return {key: as_text(values[key]) for key in keys if key in values}


def _safe(value: str) -> str:
    """A value as part of a folder's name, another one for every other value."""
    safe = re.sub(r"[^\w.=+,~-]", "_", value.replace(":", "~"), flags=re.ASCII)
    if safe.replace("~", ":") == value and len(safe) <= LONGEST_VALUE:
        return safe
    return f"{safe[:LONGEST_VALUE]}-{hashlib.sha256(value.encode()).hexdigest()[:8]}"


def say(console: Console, line: str) -> None:
    """A line as it is, however long."""
    console.print(line, soft_wrap=True, highlight=False, markup=False)


def waiting(console: Console, what: str) -> AbstractContextManager[object]:
    """Tell in a terminal what is being waited for, as long as it takes."""
    return console.status(what) if console.is_terminal and not console.quiet else nullcontext()


def progress(config: RunConfig, console: Console, name: str = "") -> Observer:
    """A bar in a terminal or a notebook, a line a round elsewhere; by its `cell_name` without a name."""
    if console.is_jupyter and not console.quiet:
        return NotebookBar(config, console, name)
    if console.is_terminal:
        return ProgressBar(config, console, name)
    return RoundLines(config, console, name)


class _FiguresBelow(Progress):
    """A bar with a line of figures under it: side by side they do not fit into 80 columns."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield from filter(None, (task.fields["figures"] for task in self.tasks))


class ProgressBar(Observer):
    """A bar that moves with every client's answer, and under it the loss."""

    def __init__(self, config: RunConfig, console: Console, name: str = "") -> None:
        asks_again = config.eval_model == "aggregated" and config.fraction_evaluate > 0
        self._phases = [MessageType.TRAIN, *([MessageType.EVALUATE] if asks_again else [])]
        self._figures = ""
        self._bar = _FiguresBelow(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[clients]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            speed_estimate_period=WINDOW,
        )
        self._task = self._bar.add_task(
            name or cell_name(config), total=config.rounds, clients="", figures=FIRST
        )

    def on_start(self, info: RunInfo) -> None:
        self._bar.update(self._task, completed=info.first_round - 1)
        self._bar.start()

    def on_end(self, *_: object) -> None:
        self._bar.stop()

    def on_answer(self, server_round: int, phase: str, done: int, asked: int) -> None:
        share = (self._phases.index(phase) + done / asked) / len(self._phases)
        clients = f"{phase} {done}/{asked}"
        rounds = server_round - 1 + share
        self._bar.update(self._task, completed=rounds, clients=clients, figures=self._figures)

    def on_round(self, result: RoundResult) -> None:
        self._figures = _figures(result)
        self._bar.update(self._task, completed=result.server_round, clients="", figures=self._figures)


class NotebookBar(ProgressBar):
    """The same bar as a notebook's output that changes in place; Rich's own asks for ipywidgets."""

    def on_start(self, info: RunInfo) -> None:
        from IPython.display import display

        self._bar.update(self._task, completed=info.first_round - 1)
        self._shown = display(self._bar, display_id=True)  # type: ignore[no-untyped-call]
        self._drawn = time.monotonic()

    def on_end(self, *_: object) -> None:
        self._shown.update(self._bar)

    def on_answer(self, server_round: int, phase: str, done: int, asked: int) -> None:
        super().on_answer(server_round, phase, done, asked)
        if time.monotonic() - self._drawn >= PAUSE:
            self._shown.update(self._bar)
            self._drawn = time.monotonic()


class RoundLines(Observer):
    """A line after every round."""

    def __init__(self, config: RunConfig, console: Console, name: str = "") -> None:
        self._config = config
        self._name = name or cell_name(config)
        self._console = console

    def on_round(self, result: RoundResult) -> None:
        rounds = f"{self._name}: round {result.server_round}/{self._config.rounds}"
        line = f"{rounds}  {_figures(result)}  {result.seconds:.1f} s"
        say(self._console, line)


def _figures(result: RoundResult) -> str:
    """The held-out figures: of the clients, else of the global model; else the loss in training."""
    figures, names = result.figures, result.figure_names
    choices = (names, [f"global-{name}" for name in names], ["train-loss"])
    found = next((names for names in choices if names[0] in figures), ())
    told = [f"{name} {figures[name]:.3f}" for name in found if name in figures]
    if result.failures:
        told.append(f"failures {result.failures}")
    return "  ".join(told)


def summary_table(config: RunConfig, summary: dict[str, Any]) -> Table:
    """The last round's figures: the global model, the clients' means, and each client if they are few."""
    best = f", the best is {summary['best-round']}" if summary.get("best-round") else ""
    table = Table(title=f"{cell_name(config)}: {summary['rounds']} rounds{best}")
    clients: dict[str, dict[str, Any]] = summary["clients"]
    names = [name for name in summary["global"] or next(iter(clients.values()), {}) if name not in NO_FIGURES]
    table.add_column("model")
    for column in ("training examples", *names):
        table.add_column(column, justify="right")

    def add(model: str, examples: str, figures: dict[str, Any]) -> None:
        table.add_row(escape(model), examples, *(shown(name, figures[name]) for name in names))

    if summary["global"]:
        add("global", "", summary["global"])
    if clients:
        add("mean over examples", "", summary["mean"])
        add("mean over clients", "", summary["client-mean"])
        if summary.get("worst-client"):
            add("worst client", "", summary["worst-client"])
    if summary.get("new-clients"):
        add("new clients, mean over examples", "", summary["new-clients"]["mean"])
    if len(clients) <= LISTED_CLIENTS:
        for partition, client in clients.items():
            add(f"client {client.get('name', partition)}", str(client["num-examples"]), client)
    return table
