"""What a person sees while a run goes on, and at its end."""

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .config import RunConfig
from .federation import RoundResult
from .registry import short

LISTED_CLIENTS = 10


def cell_name(config: RunConfig) -> str:
    """A run's place in a grid: ``fedyogi-fedbn-sgd-seed0``."""
    names = map(short, (config.strategy, config.client, config.objective))
    return f"{'-'.join(names)}-seed{config.seed}"


class ProgressBar:
    """A bar with the loss; use as a context manager."""

    def __init__(self, config: RunConfig, console: Console) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            console=console,
        )
        self._task = self._bar.add_task(cell_name(config), total=config.rounds, figures="")

    def __enter__(self) -> "ProgressBar":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def on_round(self, result: RoundResult) -> None:
        figures = result.figures
        choices = (("loss", "accuracy"), ("global-loss", "global-accuracy"), ("train-loss",))
        names = next((names for names in choices if names[0] in figures), ())
        shown = [f"{name} {figures[name]:.3f}" for name in names if name in figures]
        if result.failures:
            shown.append(f"failures {result.failures}")
        self._bar.update(self._task, completed=result.server_round, figures="  ".join(shown))


def summary_table(config: RunConfig, summary: dict[str, Any]) -> Table:
    """The last round's figures: the global model, the clients' means, and each client if they are few."""
    table = Table(title=f"{cell_name(config)}: {summary['rounds']} rounds")
    table.add_column("model")
    for column in ("training examples", "loss", "accuracy"):
        table.add_column(column, justify="right")
    if summary["global"]:
        table.add_row("global", "", *_formatted(summary["global"]))
    clients: dict[str, dict[str, Any]] = summary["clients"]
    if clients:
        table.add_row("mean over examples", "", *_formatted(summary["mean"]))
        table.add_row("mean over clients", "", *_formatted(summary["client-mean"]))
    if len(clients) <= LISTED_CLIENTS:
        for partition, client in clients.items():
            table.add_row(f"client {partition}", str(client["num-examples"]), *_formatted(client))
    return table


def _formatted(figures: dict[str, Any]) -> tuple[str, str]:
    loss, accuracy = figures["loss"], figures["accuracy"]
    return "" if loss is None else f"{loss:.4f}", "" if accuracy is None else f"{100 * accuracy:.1f} %"
