"""Show the progress of a run, and its results at the end."""

import hashlib
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from flwr.app import MessageType
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

from ..config.help import as_text
from ..config.run_config import RunConfig
from ..core.ground.columns import GLOBAL, POOLED
from ..core.notes import Note
from ..core.stored import rows_of
from ..core.text import number_of, visible
from ..names import short
from ..records.events import Observer, RoundResult, RunInfo
from ..records.metrics import shown
from ..records.summary import OfClient, Summary, tested_on
from .rare_event import leading_by_round, main_first
from .report import NAME as REPORT
from .report.tables import Table as Report
from .run_reader import Run
from .summary import LISTED_CLIENTS, NOBODY, NON_METRICS, class_columns, over_labels, shown_mean
from .terminal import fit_to_width

WINDOW = 600.0  # seconds of the run from which the remaining time is estimated
MAX_VALUE_LENGTH = 60  # characters of a value in a folder's name
FIRST = "waiting for the first client of the first round"
WIDE = 110  # characters of a terminal or notebook that also shows which run it is
NARROW = 64  # characters of a terminal, below which round and time left stand first, and no bar
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
        if not console.quiet:  # it would be laid out all the same
            console.print(fit_to_width(Report.of_learnt(notes).terminal(), console.width))


def is_live(console: Console) -> bool:
    """Whether a line may be drawn anew in its place: in a terminal, without ``NO_COLOR`` and ``CI``."""
    return console.is_interactive and not (console.quiet or console.no_color or os.environ.get("CI"))


def waiting(console: Console, what: str) -> AbstractContextManager[object]:
    """Show in a terminal what the program is waiting for, until the context ends."""
    return console.status(what) if is_live(console) else nullcontext()


def progress(config: RunConfig, console: Console, name: str = "") -> Observer:
    """Return a live line in a terminal or notebook, else one line per round; by default by `cell_name`."""
    if console.is_jupyter and not console.quiet:
        return NotebookBar(config, console)
    return ProgressBar(config, console) if is_live(console) else RoundLines(config, console, name)


class TimeLeft(TimeRemainingColumn):
    """About how long it will take, ``0:01:12 left``; how long it took; nothing of a run that ended early."""

    def __init__(self) -> None:
        super().__init__(elapsed_when_finished=True)

    def render(self, task: Task) -> Text:
        shown = super().render(task)
        return shown if task.finished else Text() if task.stop_time else shown.append(" left")


class Best:
    """The main metric of a run's rounds, and the best of them so far, in words."""

    def __init__(self, info: RunInfo) -> None:
        self._metric = _leading(info)
        self._better = max if self._metric in info.higher_is_better else min
        self._columns = [prefix + self._metric for prefix in (POOLED, "", GLOBAL)]
        self._values: list[float] = []
        for row in rows_of(info.folder / "metrics.csv") if info.folder else ():
            if int(row["round"]) < info.first_round:
                self._take({name: float(row[name]) for name in self._columns if row.get(name)})

    def of(self, result: RoundResult) -> str:
        """Return ``accuracy 76.1 %, best 80.3 %``, of a round without one the training loss; and failures."""
        train_loss = result.metrics.get("train-loss")
        if column := self._take(result.metrics):
            last, best = (shown(self._metric, v) for v in (self._values[-1], self._better(self._values)))
            text = f"{column} {last}, best {best}"
        else:
            text = "" if train_loss is None else f"train-loss {shown('train-loss', train_loss)}"
        return "  ".join(filter(None, [text, _failures(result)]))

    def _take(self, metrics: Mapping[str, float]) -> str:
        """Take the round's value; return its column, empty without one."""
        column = next((name for name in self._columns if name in metrics), "")
        if column:
            self._values.append(metrics[column])
            self._columns = [column]
        return column


class ProgressBar(Observer):
    """A line that changes with every client's answer: bar, round, the main metric, its best, time left.

    In a narrow terminal it is round, time left and as much of the metric as has room.
    """

    def __init__(self, config: RunConfig, console: Console) -> None:
        evaluates = config.eval_model == "aggregated" and config.share_evaluating > 0
        self._phases = [MessageType.TRAIN, *([MessageType.EVALUATE] if evaluates else [])]
        self._metric = ""
        columns: list[ProgressColumn] = [BarColumn(None, table_column=Column(ratio=1)), MofNCompleteColumn()]
        columns += [TextColumn("{task.fields[clients]}"), TextColumn("{task.fields[metric]}"), TimeLeft()]
        if console.width < NARROW:
            rest = Column(ratio=1, no_wrap=True)
            columns = [columns[1], columns[4], TextColumn("{task.fields[metric]}", table_column=rest)]
        self._bar = Progress(
            *([TextColumn("{task.description}")] if console.width >= WIDE else []),
            *columns,
            console=console,
            expand=True,
            speed_estimate_period=WINDOW,
        )
        self._task = self._bar.add_task(cell_name(config), total=config.rounds, clients="", metric=FIRST)

    def _begin(self, info: RunInfo) -> None:
        self._best = Best(info)
        self._bar.update(self._task, completed=info.first_round - 1)
        self._bar.advance(self._task, 0)  # from here on the time of a round is measured

    def on_start(self, info: RunInfo) -> None:
        self._begin(info)
        self._bar.start()

    def on_end(self, summary: Mapping[str, Any] | None, error: BaseException | None) -> None:
        self._bar.stop_task(self._task)
        self._bar.stop()

    def on_answer(self, server_round: int, phase: str, done: int, total: int) -> None:
        share = (self._phases.index(phase) + done / total) / len(self._phases)
        clients = f"{phase} {done}/{total}"
        rounds = server_round - 1 + share
        self._bar.update(self._task, completed=rounds, clients=clients, metric=self._metric)

    def on_round(self, result: RoundResult) -> None:
        self._metric = self._best.of(result)
        self._bar.update(self._task, completed=result.server_round, clients="", metric=self._metric)


class NotebookBar(ProgressBar):
    """The same line as notebook output, updated in place; Rich's own needs ipywidgets.

    While the run goes on, the curve of the main metric is below it. Drawing takes a tenth of the time.
    """

    _curve = ""
    _idle_until = 0.0

    def on_start(self, info: RunInfo) -> None:
        from IPython.display import display

        self._begin(info)
        self._info = info
        self._shown = display(self, display_id=True)  # type: ignore[no-untyped-call]
        self._updated = time.monotonic()

    def on_end(self, summary: Mapping[str, Any] | None, error: BaseException | None) -> None:
        super().on_end(summary, error)
        self._curve = self._curve if error else ""  # the result shows all curves
        self._shown.update(self)

    def on_answer(self, server_round: int, phase: str, done: int, total: int) -> None:
        super().on_answer(server_round, phase, done, total)
        if time.monotonic() - self._updated >= PAUSE:
            self._shown.update(self)
            self._updated = time.monotonic()

    def on_round(self, result: RoundResult) -> None:
        super().on_round(result)
        began = time.monotonic()
        if self._info.folder and began >= self._idle_until:
            from .plotting.report_plots import metric_curve

            figure = metric_curve(Run.read(self._info.folder), _leading(self._info))
            self._curve = figure.as_svg(f"live-{id(self)}", tells=False)
            self._shown.update(self)
            self._idle_until = time.monotonic() + 9 * (time.monotonic() - began)

    def _repr_mimebundle_(self, *of: object, **more: object) -> dict[str, str]:
        found = self._bar._repr_mimebundle_([], [])  # type: ignore[misc]
        return {**found, "text/html": found["text/html"] + self._curve}


class RoundLines(Observer):
    """Print a line after every round."""

    def __init__(self, config: RunConfig, console: Console, name: str = "") -> None:
        self._config = config
        self._name = name or cell_name(config)
        self._console = console
        self._main = ""

    def on_start(self, info: RunInfo) -> None:
        self._main = _leading(info)

    def on_round(self, result: RoundResult) -> None:
        rounds = f"{self._name}: round {result.server_round}/{self._config.rounds}"
        line = f"{rounds}  {_metrics_text(result, self._main)}  {result.seconds:.1f} s"
        say(self._console, line)


def _metrics_text(result: RoundResult, main: str) -> str:
    """Return the held-out metrics of the clients, else of the global model, else the training loss.

    Those of the clients are pooled where the run has further metrics. The ``main`` one is the first.
    """
    values, names = result.metrics, sorted(result.metric_names, key=lambda name: name != main)
    choices = [{prefix + name: name for name in names} for prefix in (POOLED, "", GLOBAL)]
    found = next((some for some in choices if some.keys() & values.keys()), {"train-loss": "train-loss"})
    parts = [
        f"{column} {shown(name, values[column], 3)}" for column, name in found.items() if column in values
    ]
    return "  ".join(filter(None, [*parts, _failures(result)]))


def _leading(info: RunInfo) -> str:
    return leading_by_round(info.compared_by, info.by_rare_accuracy, info.metrics)


def _failures(result: RoundResult) -> str:
    return f"failures {result.failures}" if result.failures else ""


def summary_table(config: RunConfig, summary: Summary) -> Table:
    """Return a table of the summary's metrics: global model, the clients' means, and each client if few.

    Values by class are left out: they do not fit into a terminal.
    """
    best = f", the best is {summary.best_round}" if summary.best_round else ""
    clients = summary.clients
    said = filter(None, [tested_on([summary]), over_labels([config.problem])])
    title = f"{cell_name(config)}: {number_of(summary.rounds, 'round')}{best}"
    table = Table(title=escape(title), caption=escape("; ".join(said)) or None)
    first = {
        **(summary.global_ or next(iter(clients.values()), summary.mean or {})),
        **(summary.pooled or {}),
    }
    left_out = {*NON_METRICS, *class_columns(summary)}
    names = main_first(summary, summary.compared_by, (name for name in first if name not in left_out))
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
            add(f"mean over examples, {word}", "", other.mean, other.clients)
    if new := summary.new_clients:
        add("new clients, mean over examples", "", new.mean, new.clients)
    if received := summary.new_clients_as_received:
        add("the same, statistics as received", "", received.mean, received.clients)
    if len(clients) <= LISTED_CLIENTS:
        for partition, client in clients.items():
            add(f"client {client.get('name', partition)}", str(client["num-examples"]), client)
    return table
