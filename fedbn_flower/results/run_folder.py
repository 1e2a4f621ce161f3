"""Write the folder of a run: configuration, metrics, summary, model and figures."""

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path

from flwr.app import ArrayRecord

from fedbn_flower.clients import Groups

from .. import annexes
from ..core.errors import os_errors_as_user_errors
from ..core.files import json_text, write_all, write_atomically
from ..core.stored import CONFIG, damage_as_user_errors
from ..records.checkpoint import Checkpoint
from ..records.events import Observer, RoundResult
from ..records.summary import Summary
from ..server.federation import Federation
from ..site.memory_folder import signature
from . import report
from .checkpoints.checkpoint_folder import BEST, LAST, BackgroundWriter, CheckpointFolder
from .kept_round import MODEL_FILE, KeptRounds
from .manifest import build_manifest, of_resumed
from .plotting.drawer import finish_files
from .plotting.plots import plot_curves, plot_partitions
from .report.sections.warnings import doubts
from .resume import warn_of_rounds
from .round_tables import RoundTables
from .run_reader import Run
from .summary import summary_of

LOGGER = logging.getLogger("flwr.fedbn")


class RunFolder(Observer):
    """Write a run's folder during the run, on a background thread that no round waits for.

    What has been written stays valid, however the run ends.

    Rows are added to the `RoundTables` after every round. ``model.safetensors``, ``summary.json`` and
    ``classes.csv``, with one row per client and class, are of one round: that of the last checkpoint and, at
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
        for name, folder in self.folders.items() if federation.config.keeps_best else ():
            if checkpoint and folder.last_round() < checkpoint.server_round:  # not the folder resumed from
                self.changed[name] = set(range(federation.config.num_clients))
        """By folder, the partitions whose memory may differ from the saved one."""
        self.unwritten = 0
        counters = checkpoint.counters if checkpoint else {}
        best = self.folders[BEST].load() if checkpoint else None
        self.rounds = KeptRounds(federation, counters.get("train-examples", {}), best)
        self.seconds: float = counters.get("seconds", 0.0)
        self.started = time.monotonic() - self.seconds
        self.failures: int = counters.get("failures", 0)
        last_round = checkpoint.server_round if checkpoint else 0
        with self._os_errors_as_user_errors():
            self._begin_files(last_round)

    def _begin_files(self, last_round: int) -> None:
        """Write what is known before a round; keep the rows up to the last round."""
        path, federation = self.path, self.federation
        manifest = build_manifest(federation)
        if last_round:
            warn_of_rounds(federation.inputs, last_round)
            manifest = of_resumed(manifest, path)
        write_atomically(path / CONFIG, json_text(manifest, indent=2) + "\n")
        with damage_as_user_errors("resume", path) if last_round else nullcontext():
            self.tables = RoundTables(path, federation, last_round)
        if federation.dataset.has_examples:
            plot_partitions(path / "partitions.png", federation.inputs)

    def on_round(self, result: RoundResult) -> None:
        self.failures += result.failures
        for changed in self.changed.values():
            changed.update(result.train.metrics, result.train.failures)
        self.seconds = time.monotonic() - self.started
        every = self.federation.config.checkpoint_every
        due = every and (result.last or result.server_round % every == 0) and not result.diverged
        best = every and result.improved
        with self._os_errors_as_user_errors():
            self.tables.add_round(result)
            self.rounds.take(result)
            self.unwritten = result.server_round
            if due or best:
                self.writer.wait()  # for the previous checkpoint
                self._write()
            if best:
                self._save_checkpoint(result, BEST)
            if due:
                self._save_checkpoint(result, LAST)

    def finish(self) -> Summary | None:
        """Write what the last checkpoint did not, then the figures and the report; return the summary."""
        with self._os_errors_as_user_errors():
            try:
                if self.unwritten:
                    self._write()
            finally:
                self.writer.close()
            self.tables.clients.write_columns()
            plot_curves(self.path)
            report.begin_figures(self.path)
            for write in annexes.brought("at-the-end").values():
                write(self.path, self.federation.problem, self.federation.config.seed)
            report.write_report(self.path)
            finish_files()
        for line in doubts(Run.read(self.path)):
            LOGGER.warning("%s", line)
        return self.summary

    @property
    def summary(self) -> Summary | None:
        """The content of ``summary.json``; None before there is one."""
        return Summary.read(self.path, "run-dir")

    def _os_errors_as_user_errors(self) -> AbstractContextManager[None]:
        return os_errors_as_user_errors("run-dir", f"write to {str(self.path)!r}")

    def _write(self) -> None:
        """Write the model, the summary and the rows up to the last round."""
        files: dict[str, str | bytes] = {}
        if kept := self.rounds.kept:
            summary = summary_of(self.federation, kept.figures, self.unwritten, self.seconds, self.failures)
            files = kept.content(summary)

        def write() -> None:
            self.tables.sync()
            write_all(self.path, files)

        self.writer.submit(write, len(files.get(MODEL_FILE, b"")))
        self.unwritten = 0

    def _save_checkpoint(self, result: RoundResult, name: str) -> None:
        state = result.state
        counters = {
            "seconds": self.seconds,
            "failures": self.failures,
            "train-examples": self.rounds.train_examples,
        }
        counters["account"] = asdict(self.federation.totals)
        counters["extensions"], arrays = self.federation.extensions.state()
        if kept := self.federation.memories.state():
            counters["memories"] = kept
        if name == BEST and self.rounds.kept:
            counters["figures"] = self.rounds.kept.figures.as_json()
        checkpoint = Checkpoint(
            result.server_round,
            state.updates,
            result.travels,
            state.vectors,
            counters,
            self.federation.run_name,
            self.signature,
            state.draws,
            dict(self.federation.buffers.versions) if self.federation.buffers else {},
            arrays,
            result.arrays if result.arrays is not result.travels else ArrayRecord(),
            state.models,
            state.assigned,
        )
        memories = ((partition, self.memory_of(partition)) for partition in sorted(self.changed[name]))
        self.folders[name].save(checkpoint, memories, self.writer)
        self.changed[name] = set()
