"""Show the progress of a run, and its results at the end."""

import hashlib
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from flwr.app import MessageType
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ..config.help import as_text
from ..config.run_config import RunConfig
from ..core.ground.columns import GLOBAL, POOLED
from ..core.text import visible
from ..data.notes import Note
from ..names import short
from ..records.events import Observer, RoundResult, RunInfo
from ..records.summary import OfClient, Summary, tested_on
from .report import NAME as REPORT
from .report.tables import Table as Report
from .summary import LISTED_CLIENTS, NOBODY, NON_METRICS, class_columns, shown_mean
from .terminal import fit_to_width

WINDOW = 600.0  # seconds of the run from which the remaining time is estimated
MAX_VALUE_LENGTH = 60  # characters of a value in a folder's name
FIRST = "waiting for the first client of the first round"
PAUSE = 0.1  # seconds between two updates of a bar in a notebook


def cell_name(config: RunConfig, keys: Iterable[str] = ()) -> str:
    """Return the name of a run's folder in a sweep, such as ``fedyogi-fedbn-sgd-server-lr=0.01-seed0``.

    It holds those of the further swept keys that the run has. A reference's is, for example,
    ``pooled-seed0``.
    """
    names = list(map(short, (config.strategy, config.client, config.objective)))
    if config.reference != "none":
        names = [config.reference]
    values = values_of(config, (key for key in keys if key != "reference"))
    settings = [f"{key}={_safe(value)}" for key, value in values.items()]
    return "-".join([*names, *settings, f"seed{config.seed}"])


def values_of(config: RunConfig, keys: Iterable[str]) -> dict[str, str]:
    """Return the values, as text, of those of the keys that the run has."""
    values = config.to_user_config()
    return {key: as_text(values[key]) for key in keys if key in values}


def _safe(value: str) -> str:
    """Return a value as part of a folder's name, unique to that value."""
    safe = re.sub(r"[^\w.=+,~-]", "_", value.replace(":", "~"), flags=re.ASCII)
    if safe.replace("~", ":") == value and len(safe) <= MAX_VALUE_LENGTH:
        return safe
    return f"{safe[:MAX_VALUE_LENGTH]}-{hashlib.sha256(value.encode()).hexdigest()[:8]}"


def say(console: Console, line: str) -> None:
    """Print a line unchanged, without wrapping or markup."""
    console.print(visible(line), soft_wrap=True, highlight=False, markup=False, emoji=False)


def last_line(folder: Path) -> str:
    """Return what ends a job: where its report is, or its results if it has none."""
    report = folder / REPORT
    return f"the report is {report}" if report.exists() else f"results are in {folder}"


def show_learnt(learnt: Iterable[Sequence[Note]], console: Console) -> None:
    """Print what runs learn, from what, and from whom."""
    for notes in learnt:
        console.print(fit_to_width(Report.of_learnt(notes).terminal(), console.width))


def waiting(console: Console, what: str) -> AbstractContextManager[object]:
    """Show in a terminal what the program is waiting for, until the context ends."""
    return console.status(what) if console.is_terminal and not console.quiet else nullcontext()


def progress(config: RunConfig, console: Console, name: str = "") -> Observer:
    """Return a progress bar in a terminal or notebook, else one line per round; by default by `cell_name`."""
    if console.is_jupyter and not console.quiet:
        return NotebookBar(config, console, name)
    if console.is_terminal:
        return ProgressBar(config, console, name)
    return RoundLines(config, console, name)


class _MetricsBelow(Progress):
    """A bar with a line of metrics below it: side by side they do not fit into 80 columns."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield from filter(None, (task.fields["metrics"] for task in self.tasks))


class ProgressBar(Observer):
    """A bar that advances with every client's answer, with the metrics below it."""

    def __init__(self, config: RunConfig, console: Console, name: str = "") -> None:
        evaluates = config.eval_model == "aggregated" and config.share_evaluating > 0
        self._phases = [MessageType.TRAIN, *([MessageType.EVALUATE] if evaluates else [])]
        self._metrics = ""
        self._bar = _MetricsBelow(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[clients]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            speed_estimate_period=WINDOW,
        )
        self._task = self._bar.add_task(
            name or cell_name(config), total=config.rounds, clients="", metrics=FIRST
        )

    def on_start(self, info: RunInfo) -> None:
        self._bar.update(self._task, completed=info.first_round - 1)
        self._bar.start()

    def on_end(self, *_: object) -> None:
        self._bar.stop()

    def on_answer(self, server_round: int, phase: str, done: int, total: int) -> None:
        share = (self._phases.index(phase) + done / total) / len(self._phases)
        clients = f"{phase} {done}/{total}"
        rounds = server_round - 1 + share
        self._bar.update(self._task, completed=rounds, clients=clients, metrics=self._metrics)

    def on_round(self, result: RoundResult) -> None:
        self._metrics = _metrics_text(result)
        self._bar.update(self._task, completed=result.server_round, clients="", metrics=self._metrics)


class NotebookBar(ProgressBar):
    """The same bar as notebook output, updated in place; Rich's own needs ipywidgets."""

    def on_start(self, info: RunInfo) -> None:
        from IPython.display import display

        self._bar.update(self._task, completed=info.first_round - 1)
        self._shown = display(self._bar, display_id=True)  # type: ignore[no-untyped-call]
        self._updated = time.monotonic()

    def on_end(self, *_: object) -> None:
        self._shown.update(self._bar)

    def on_answer(self, server_round: int, phase: str, done: int, total: int) -> None:
        super().on_answer(server_round, phase, done, total)
        if time.monotonic() - self._updated >= PAUSE:
            self._shown.update(self._bar)
            self._updated = time.monotonic()


class RoundLines(Observer):
    """Print a line after every round."""

    def __init__(self, config: RunConfig, console: Console, name: str = "") -> None:
        self._config = config
        self._name = name or cell_name(config)
        self._console = console

    def on_round(self, result: RoundResult) -> None:
        rounds = f"{self._name}: round {result.server_round}/{self._config.rounds}"
        line = f"{rounds}  {_metrics_text(result)}  {result.seconds:.1f} s"
        say(self._console, line)


def _metrics_text(result: RoundResult) -> str:
    """Return the held-out metrics of the clients, else of the global model, else the training loss.

    Those of the clients are pooled where the run has further metrics.
    """
    values, names = result.metrics, result.metric_names
    choices = [[prefix + name for name in names] for prefix in (POOLED, "", GLOBAL)]
    found = next((names for names in [*choices, ["train-loss"]] if names[0] in values), ())
    parts = [f"{name} {values[name]:.3f}" for name in found if name in values]
    if result.failures:
        parts.append(f"failures {result.failures}")
    return "  ".join(parts)


def summary_table(config: RunConfig, summary: Summary) -> Table:
    """Return a table of the summary's metrics: global model, the clients' means, and each client if few.

    Values by class are left out: they do not fit into a terminal.
    """
    best = f", the best is {summary.best_round}" if summary.best_round else ""
    clients = summary.clients
    title, caption = f"{cell_name(config)}: {summary.rounds} rounds{best}", tested_on([summary]) or None
    table = Table(title=title, caption=caption)
    first = summary.global_ or next(iter(clients.values()), summary.mean or {})
    left_out = {*NON_METRICS, *class_columns(summary)}
    names = [name for name in first if name not in left_out]
    table.add_column("model")
    for column in ("training examples", *names):
        table.add_column(column, justify="right")

    def add(model: str, examples: str, metrics: OfClient | None, of: Mapping[str, OfClient] = NOBODY) -> None:
        if metrics and any(value is not None for value in metrics.values()):
            table.add_row(escape(model), examples, *(shown_mean(name, metrics, of) for name in names))

    add("global", "", summary.global_)
    if clients or summary.mean:
        add("pooled", "", summary.pooled)
        add("mean over examples", "", summary.mean, clients)
        add("mean over clients", "", summary.client_mean, clients)
        add("worst client", "", summary.worst_client)
    for word, other in (("recalibrated", summary.recalibrated), ("cross-fitted", summary.cross_fitted)):
        if other:
            add(f"pooled, {word}", "", other.pooled)
            add(f"mean over examples, {word}", "", other.mean)
    if new := summary.new_clients:
        add("new clients, mean over examples", "", new.mean, new.clients)
    if received := summary.new_clients_as_received:
        add("the same, statistics as received", "", received.mean, received.clients)
    if len(clients) <= LISTED_CLIENTS:
        for partition, client in clients.items():
            add(f"client {client.get('name', partition)}", str(client["num-examples"]), client)
    return table
