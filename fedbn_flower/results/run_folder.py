"""Write the folder of a run: configuration, metrics, summary, model and figures."""

import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from fedbn_flower.clients import Groups

from ..core.errors import os_errors_as_user_errors
from ..core.files import CsvLog, csv_text, json_text, write_atomically
from ..federation.cases import file_of_cases
from ..federation.federation import Federation
from ..records.cases import PREDICTIONS_FILE
from ..records.checkpoint import Checkpoint
from ..records.columns import CLIENT_COLUMNS
from ..records.events import Observer, RoundResult
from ..records.metric_states import STATES_FILE, states_file
from ..records.metrics import number
from . import report
from .checkpoints.background_writer import BackgroundWriter
from .checkpoints.checkpoint_folder import BEST, LAST, CheckpointFolder
from .checkpoints.memory_file import signature
from .intervals import write_intervals
from .manifest import build_manifest
from .plotting.plots import plot_curves, plot_partitions
from .run_reader import Run
from .summary import (
    CLASSES_HEADER,
    class_rows,
    facts_of_metrics,
    round_costs,
    round_header,
    round_metrics,
    run_totals,
    without_lists,
)

LOGGER = logging.getLogger("flwr.fedbn")


@dataclass(frozen=True)
class RoundSnapshot:
    """What is written of one round: the model, the summary, classes, states and predictions.

    The last three are empty if their files are to stay as they are.
    """

    entries: Mapping[str, NDArray]
    metrics: dict[str, Any]
    classes: str = ""
    states: bytes = b""
    predictions: bytes = b""


class RunFolder(Observer):
    """Write a run's folder during the run, on a background thread that no round waits for.

    What has been written stays valid, however the run ends.

    ``metrics.csv`` has one row per round. ``clients.csv`` has one row per (round, phase, partition) with what
    that client reported. Rows are added after every round. ``failures.csv`` has one row per unused answer,
    with the reason; ``classes.csv`` has one per client and class. ``model.safetensors`` and ``summary.json``
    hold the model, with its frozen entries, and the metrics of one round: that of the last checkpoint and, at
    the end, the last. With patience they are of the best so far, and so are the clients' memories in
    ``best``, a second checkpoint; memories that SuperNodes keep are of the last round.
    `metrics.held_out_means` defines the means over clients.

    Parameters
    ----------
    path : Path
        A new or empty folder, or the one to resume in; see `run_directory.run_folder_locked`.
    federation : Federation
        The run.
    memories : callable, optional
        Returns a client's memory by partition, for a checkpoint. Without it, a checkpoint holds the server's
        side only.
    checkpoint : Checkpoint, optional
        The checkpoint from which the run resumes.
    """

    def __init__(
        self,
        path: Path,
        federation: Federation,
        memories: Callable[[int], Groups] | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.path = path
        self.federation = federation
        self.memory_of = memories or (lambda partition: {})
        self.signature: str | None = None
        if checkpoint:
            self.signature = checkpoint.signature
        elif memories:
            config = federation.config
            names = config.memory_name, config.client, config.objective
            self.signature = signature(*names, federation.initial)
        self.writer = BackgroundWriter()
        self.folders = {name: CheckpointFolder(path / name) for name in (LAST, BEST)}
        self.changed: dict[str, set[int]] = {name: set() for name in self.folders}
        for name, folder in self.folders.items() if federation.config.patience else ():
            if checkpoint and folder.last_round() < checkpoint.server_round:  # not the folder resumed from
                self.changed[name] = set(range(federation.config.num_clients))
        """By folder, the partitions whose memory may differ from the saved one."""
        self.unwritten = 0
        self.kept = self.finite = self._load_best() if checkpoint else None
        """Of the last round, or of the best with patience; and of the last round that was evaluated."""
        counters = checkpoint.counters if checkpoint else {}
        self.seconds: float = counters.get("seconds", 0.0)
        self.started = time.monotonic() - self.seconds
        self.failures: int = counters.get("failures", 0)
        self.train_examples: dict[str, int] = counters.get("train-examples", {})
        last_round = checkpoint.server_round if checkpoint else 0
        with self._os_errors_as_user_errors():
            self._begin_files(last_round)

    def _begin_files(self, last_round: int) -> None:
        """Write what is known before a round; keep the rows up to the last round."""
        path, federation, problem = self.path, self.federation, self.federation.problem
        write_atomically(path / "config.json", json_text(build_manifest(federation), indent=2) + "\n")
        header = [*round_header(problem), *federation.extensions.header]
        self.metrics = CsvLog(path / "metrics.csv", header, last_round)
        header = [*CLIENT_COLUMNS, "num-examples", *problem.metrics]
        self.clients = CsvLog(path / "clients.csv", header, last_round)
        refused = path / "failures.csv"
        self.refused = CsvLog(refused, [*CLIENT_COLUMNS, "reason"], last_round if refused.exists() else 0)
        if federation.dataset.has_examples:
            plot_partitions(path / "partitions.png", federation.inputs)

    def on_round(self, result: RoundResult) -> None:
        self.failures += result.failures
        for changed in self.changed.values():
            changed.update(result.train.metrics, result.train.failures)
        self.seconds = time.monotonic() - self.started
        self._count_train_examples(result)
        every = self.federation.config.checkpoint_every
        due = every and (result.last or result.server_round % every == 0)
        if result.diverged:
            due, self.kept = False, self.finite
        elif result.kept:
            self.kept = self._snapshot(result)
            self.finite = self.kept if result.splits else self.finite
        best = every and result.improved
        with self._os_errors_as_user_errors():
            self._add_rows(result)
            self.unwritten = result.server_round
            if due or best:
                self.writer.wait()  # for the previous checkpoint
                self._write()
            if best:
                self._save_checkpoint(result, BEST)
            if due:
                self._save_checkpoint(result, LAST)

    def finish(self) -> dict[str, Any] | None:
        """Write what the last checkpoint did not, then the figures and the report; return the summary."""
        with self._os_errors_as_user_errors():
            try:
                if self.unwritten:
                    self._write()
            finally:
                self.writer.close()
            write_intervals(self.path, self.federation.problem, self.federation.config.seed)
            self.clients.write_columns()
            plot_curves(self.path)
            report.write_report(self.path)
        for line in Run.read(self.path).missed_in_silence:
            LOGGER.warning("%s", line)
        return self.summary

    @property
    def summary(self) -> dict[str, Any] | None:
        """The content of ``summary.json``; None before there is one."""
        path = self.path / "summary.json"
        summary: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
        return summary

    def _os_errors_as_user_errors(self) -> AbstractContextManager[None]:
        return os_errors_as_user_errors("run-dir", f"write to {str(self.path)!r}")

    def _add_rows(self, result: RoundResult) -> None:
        self.metrics.append(
            [
                {
                    "round": result.server_round,
                    "seconds": round(result.seconds, 3),
                    "replies": len(result.train.metrics),
                    "failures": result.failures,
                    **result.metrics,
                    **round_costs(result),
                    **result.noted,
                    **{name: v for name, v in result.spread.items() if name in self.metrics.columns},
                }
            ]
        )
        phases = {"train": result.train} | (
            {"evaluate": result.evaluate} if result.evaluate is not result.train else {}
        )
        phases |= result.others
        self.clients.append(
            [
                {
                    "round": result.server_round,
                    "phase": phase,
                    "partition": partition,
                    **without_lists(metrics),
                    **(result.facts_of_clients.get(partition, {}) if phase == "train" else {}),
                }
                for phase, answers in phases.items()
                for partition, metrics in answers.metrics.items()
            ]
        )
        self.refused.append(
            [
                {"round": result.server_round, "phase": phase, "partition": partition, "reason": reason}
                for phase, answers in phases.items()
                for partition, reason in answers.failures.items()
            ]
        )

    def _snapshot(self, result: RoundResult) -> RoundSnapshot:
        """Return what is kept of a round."""
        inputs, dataset = self.federation.inputs, self.federation.dataset
        rows = class_rows(result, dataset)
        return RoundSnapshot(
            self.federation.known_of_model(result.server_round, result.arrays),
            round_metrics(
                result,
                dataset,
                self.train_examples,
                inputs.client_names,
                dataset.has_examples and not inputs.evaluates_locally,
            ),
            csv_text(CLASSES_HEADER, rows) if rows else "",
            states_file(result, dataset.problem),
            file_of_cases(result, inputs),
        )

    def _load_best(self) -> RoundSnapshot | None:
        """Return what is kept of the best round of a resumed run."""
        if (best := self.folders[BEST].load()) is None:
            return None
        entries = self.federation.known_of_model(best.server_round, best.arrays)
        return RoundSnapshot(entries, best.counters["figures"])

    def _write(self) -> None:
        """Write the model, the summary and the rows up to the last round."""
        if not (kept := self.kept):
            self.writer.submit(self._sync, 0)
            self.unwritten = 0
            return
        model = save({name: np.require(entry, requirements="C") for name, entry in kept.entries.items()})
        of_extensions = self.federation.extensions.summary()
        summary = {
            **run_totals(self.federation.totals, of_extensions, self.unwritten, self.seconds),
            **kept.metrics,
            **facts_of_metrics(self.federation.problem),
            "failures": self.failures,
            **({"memories-lost": lost} if (lost := self.federation.memories.lost) else {}),
        }
        text = json_text(summary, indent=2) + "\n"

        def write() -> None:
            self._sync()
            write_atomically(self.path / "model.safetensors", model)
            if kept.classes:
                write_atomically(self.path / "classes.csv", kept.classes)
            if kept.states:
                write_atomically(self.path / STATES_FILE, kept.states)
            if kept.predictions:
                write_atomically(self.path / PREDICTIONS_FILE, kept.predictions)
            write_atomically(self.path / "summary.json", text)

        self.writer.submit(write, len(model))
        self.unwritten = 0

    def _sync(self) -> None:
        for rows in (self.metrics, self.clients, self.refused):
            rows.sync()

    def _save_checkpoint(self, result: RoundResult, name: str) -> None:
        strategy = self.federation.strategy
        counters = {"seconds": self.seconds, "failures": self.failures, "train-examples": self.train_examples}
        counters["account"] = asdict(self.federation.totals)
        counters["extensions"], arrays = self.federation.extensions.state()
        if kept := self.federation.memories.state():
            counters["memories"] = kept
        if name == BEST and self.kept:
            counters["figures"] = self.kept.metrics
        checkpoint = Checkpoint(
            result.server_round,
            strategy.rule_state.updates,
            result.arrays,
            dict(strategy.rule_state.vectors),
            counters,
            self.federation.run_name,
            self.signature,
            dict(strategy.rule_state.draws),
            dict(self.federation.buffers.versions) if self.federation.buffers else {},
            arrays,
        )
        memories = ((partition, self.memory_of(partition)) for partition in sorted(self.changed[name]))
        self.folders[name].save(checkpoint, memories, self.writer)
        self.changed[name] = set()

    def _count_train_examples(self, result: RoundResult) -> None:
        for partition, metrics in result.train.metrics.items():
            self.train_examples[str(partition)] = int(number(metrics, "num-examples") or 0)
        for partition, metrics in result.evaluate.metrics.items():
            if (count := number(metrics, "train-examples")) is not None:
                self.train_examples[str(partition)] = int(count)
