"""What observers of a run see: the run, its rounds, its end; and whose metric decides."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, UserConfigValue
from numpy.typing import NDArray

from fedbn_flower.strategies import PhaseReport, RuleState
from fedbn_flower.strategies.messages.npy import viewed

from ..core.ground.columns import CLIENT_MEAN, CLIENT_MEDIAN, GLOBAL, POOLED
from ..core.notes import Note
from .summary import Summary

DECIDING: Mapping[str, tuple[str, ...]] = {
    "pooled": (POOLED, ""),
    "mean": (CLIENT_MEAN,),
    "median": (CLIENT_MEDIAN,),
    "server": (GLOBAL,),
}
"""The prefixes of the metrics that decide, by ``decide-by``; the first that there is."""


def deciding(metrics: Mapping[str, Any], name: str, by: str) -> Any:
    """Return the value of a metric by which rounds and runs are compared; None if there is none.

    ``by`` is one of `DECIDING`. Pooled is over all clients' examples; without states, the mean over them.
    """
    found = (metrics.get(prefix + name) for prefix in DECIDING[by])
    return next((value for value in found if value not in (None, "")), None)


NEW, NEW_AS_RECEIVED = "new", "new-as-received"
LOGGER = logging.getLogger("flwr.fedbn")


@dataclass(frozen=True)
class RunInfo:
    """A run before its first round.

    Parameters
    ----------
    config : Mapping[str, UserConfigValue]
        Every key of the configuration and setting of its algorithms, by the flag's name.
    folder : Path, optional
        The run's folder, if it has one.
    first_round, rounds : int
        The first round that is run, more than 1 in a run that is resumed, and the last one, if nothing ends
        the run early.
    dataset, partition : str
        As the configuration names them.
    client_names : tuple[str, ...]
        Whose data each client has, by partition; empty where the data do not say so.
    metrics : tuple[str, ...]
        The names of the held-out metrics, the loss first.
    compared_by : str
        The metric by which runs are compared.
    higher_is_better : frozenset[str]
        The metrics of which higher values are better; of the others lower ones are.
    learnt : tuple[Note, ...]
        What the run learns, from what, and from whom.
    by_rare_accuracy : bool
        Whether ``compared_by`` is the accuracy of a rare event, which then leads nothing that is shown.
    """

    config: Mapping[str, UserConfigValue]
    folder: Path | None
    first_round: int
    rounds: int
    dataset: str
    partition: str
    client_names: tuple[str, ...]
    metrics: tuple[str, ...]
    compared_by: str
    higher_is_better: frozenset[str]
    learnt: tuple[Note, ...] = ()
    by_rare_accuracy: bool = False


def prefix_of(splits: str) -> str:
    """Return how the metrics of the last of comma-separated splits begin."""
    *before, last = splits.split(",")
    return f"{last}-" if before else ""


@dataclass(frozen=True)
class RoundResult:
    """The result of one round. ``evaluate`` is ``train`` where clients evaluate the model they trained."""

    server_round: int
    seconds: float
    arrays: ArrayRecord
    train: PhaseReport
    evaluate: PhaseReport
    means: Mapping[str, float]
    """Over the round's clients; see `metrics.round_means`."""
    global_metrics: Mapping[str, Any] | None
    """The global model's, with its counts by class and ``states``."""
    metric_names: tuple[str, ...]
    """The names of the held-out metrics, the loss first; without those by class, which `metrics` has too."""
    before: ArrayRecord = field(default_factory=ArrayRecord)
    """What travelled when the round began."""
    travels: ArrayRecord = field(default_factory=ArrayRecord)
    """What travels next: ``arrays``, but where a strategy sends another model than the one that counts."""
    splits: str = ""
    """The splits that the round was evaluated on; empty without evaluation."""
    spread: Mapping[str, float] = field(default_factory=dict)
    """See `metrics.spread`."""
    pooled: Mapping[str, float] = field(default_factory=dict)
    """See `metrics.pooled_metrics`."""
    seconds_waited: Mapping[str, float] = field(default_factory=dict)
    """Seconds spent waiting for replies, by phase."""
    bytes_sent: int = 0
    bytes_received: int = 0
    others: Mapping[str, PhaseReport] = field(default_factory=dict)
    """What clients that do not train found of the model, by phase: `NEW`, and with ``leave-one-site-out``
    `NEW_AS_RECEIVED`, without BatchNorm statistics of their own."""
    decide_by: str = "pooled"
    """Whose metrics decide, of `deciding.DECIDING`."""
    costs: Mapping[str, float] = field(default_factory=dict)
    """What the run has cost when the round ends; see `RunTotals.costs`."""
    facts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What the run's extensions have noted, by column, by the name of the extension: learning rates with a
    schedule, what privacy has cost, simulated seconds."""
    facts_of_clients: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """The same of clients that trained, by partition."""
    improved: bool = False
    """Whether an extension has seen no better model."""
    kept: bool = True
    """Whether the round's model is the one to keep so far."""
    stopped: str = ""
    """Why the run ends with the round, if an extension ends it."""
    diverged: str = ""
    """Who found the model no longer finite, and how; empty if it is finite."""
    last: bool = False
    state: RuleState = field(default_factory=RuleState)
    """The server rule's, when the round was over."""
    only_sums: bool = False
    """Whether nothing is known of single clients but who answered: `train` and `evaluate` name them, without
    metrics."""

    @property
    def new(self) -> PhaseReport | None:
        """The report of the held-out clients, where they evaluated."""
        return self.others.get(NEW)

    @property
    def new_as_received(self) -> PhaseReport | None:
        """The same without BatchNorm statistics of their own."""
        return self.others.get(NEW_AS_RECEIVED)

    def change(self, names: Iterable[str] | None = None) -> dict[str, NDArray]:
        """Return the change of entries in this round, float64 by name; by default of all that travel."""
        after = self.travels or self.arrays
        pairs = ((n, viewed(self.before[n]), viewed(after[n])) for n in names or after)
        return {name: np.subtract(after, before, dtype=np.float64) for name, before, after in pairs}

    @property
    def noted(self) -> dict[str, float]:
        """All `facts`, by column."""
        return {name: value for columns in self.facts.values() for name, value in columns.items()}

    @property
    def metrics(self) -> dict[str, float]:
        """The means, the global model's metrics as ``global-...``, and pooled ones as ``pooled-...``."""
        numbers = {k: v for k, v in (self.global_metrics or {}).items() if isinstance(v, int | float)}
        return {
            **self.means,
            **{f"{GLOBAL}{k}": v for k, v in numbers.items()},
            **{f"{POOLED}{k}": v for k, v in self.pooled.items()},
        }

    def deciding(self, name: str, by: str = "") -> float | None:
        """Return the metric of this name by which rounds are compared: the run's choice, or ``by``."""
        value: float | None = deciding(self.metrics, name, by or self.decide_by)
        return value

    @property
    def prefix(self) -> str:
        """The prefix of the metrics that the summary has: those of the last split."""
        return prefix_of(self.splits)

    @property
    def reports(self) -> dict[str, PhaseReport]:
        """What clients answered, by phase; in ``new`` those did that do not train."""
        if self.only_sums:
            phases = {"train": self.train, "evaluate": self.evaluate}
            return {phase: PhaseReport(failures=report.failures) for phase, report in phases.items()}
        evaluated = {} if self.evaluate is self.train else {"evaluate": self.evaluate}
        return {"train": self.train, **evaluated, **self.others}

    @property
    def train_examples(self) -> dict[str, int]:
        """The numbers of training examples that clients reported, by partition as text."""
        if self.only_sums:
            return {}
        trained = self.train.numbers("num-examples")
        found = {str(partition): int(trained.get(partition, 0)) for partition in self.train.metrics}
        evaluated = self.evaluate.numbers("train-examples")
        return found | {str(partition): int(count) for partition, count in evaluated.items()}

    @property
    def failures(self) -> int:
        return sum(len(report.failures) for report in self.reports.values())


class Observer:
    """Something that watches a run: the run folder, the progress bar, a tracker of experiments.

    Every method does nothing unless it is overridden::

        class Tracker(Observer):
            def on_start(self, info):
                self.tracked = wandb.init(config=dict(info.config), resume=info.first_round > 1)

            def on_round(self, result):
                self.tracked.log(result.metrics, step=result.server_round)

            def on_end(self, summary, error):
                self.tracked.finish(exit_code=1 if error else 0)

    What an observer raises in `on_start`, `on_answer` or `on_round` ends the run, as a failure of the run
    itself does. What it raises in `on_end` is raised after the other observers' `on_end`, unless the run has
    failed: then it is a line in the log.
    """

    def on_start(self, info: RunInfo) -> None:
        """Called once, before the first round."""

    def on_answer(self, server_round: int, phase: str, done: int, total: int) -> None:
        """Called when a client answers, the ``done``-th of ``total``; phases: ``train``, ``evaluate``."""

    def on_round(self, result: RoundResult) -> None:
        """Called after every round."""

    def on_end(self, summary: Mapping[str, Any] | None, error: BaseException | None) -> None:
        """Called once after an `on_start` that returned, whatever ended the run.

        Parameters
        ----------
        summary : Mapping[str, Any], optional
            The content of ``summary.json``, also of a run that failed after some rounds; None without any.
        error : BaseException, optional
            What ended the run: `RunFailed`, KeyboardInterrupt, or what an observer raised; None if all went
            well.
        """


@contextmanager
def observed(
    observers: Iterable[Observer], info: RunInfo, finish: Callable[[], Summary | None]
) -> Iterator[None]:
    """Call `on_start` of each observer, and in the end, whatever that is, ``finish`` and each `on_end`.

    Parameters
    ----------
    observers : Iterable[Observer]
        In the order in which they are called.
    info : RunInfo
        For `on_start`.
    finish : callable
        Makes the run's summary, for `on_end`.
    """
    started: list[Observer] = []
    summary: Summary | None = None
    error: BaseException | None = None
    try:
        try:
            for observer in observers:
                observer.on_start(info)
                started.append(observer)
            yield
        finally:
            summary = finish()
    except BaseException as raised:
        error = raised
        raise
    finally:
        _end(started, summary, error)


def _end(observers: Iterable[Observer], summary: Summary | None, error: BaseException | None) -> None:
    content = summary.as_json() if summary else None
    first: Exception | None = None
    for observer in observers:
        try:
            observer.on_end(content, error)
        except Exception as raised:
            if error or first:
                LOGGER.warning("%s.on_end: %s: %s", type(observer).__name__, type(raised).__name__, raised)
            first = first or raised
    if first and not error:
        raise first
