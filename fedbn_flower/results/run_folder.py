"""The folder a run leaves behind: configuration, metrics, summary, model and pictures."""

import json
import platform
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path

import numpy as np
from flwr.app import MetricRecord
from safetensors.numpy import save

from clients import Groups

from .. import __version__
from ..assembly import client_names, held_out_splits
from ..errors import os_errors_told
from ..files import CsvLog, write_atomically
from ..rounds import Federation, Observer, RoundResult
from . import report
from .checkpoint import Checkpoint, CheckpointFolder
from .memory_file import signature
from .metrics import CLIENT_MEAN, figures_of
from .plots import plot_curves, plot_partitions
from .writer import Writer

PACKAGES = ("flwr", "flwr-datasets", "ray", "torch", "torchvision", "numpy")


class RunFolder(Observer):
    """Writes a run's folder as the run goes on, from a thread that no round waits for; what is there stands,
    whatever ends the run.

    ``metrics.csv`` has a row a round, ``clients.csv`` a row per (round, phase, partition) with what that
    client reported; rows are added after every round. ``failures.csv`` has a row for each answer that was not
    used, and why. ``model.safetensors`` and ``summary.json`` hold the
    model and the figures of one round: that of the last checkpoint, and in the end the last.
    What clients' means are is said in `metrics.held_out_means`.

    Parameters
    ----------
    path : Path
        A new or empty folder, or the one to resume in; see `place.run_folder_locked`.
    federation : Federation
        The run.
    memories : callable, optional
        Gives a client's memory by partition, for a checkpoint; without it, that is the server's side only.
    checkpoint : Checkpoint, optional
        The checkpoint that the run goes on from.
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
        self.writer = Writer()
        self.checkpoints = CheckpointFolder(path / "checkpoint")
        self.changed: set[int] = set()
        self.unwritten: RoundResult | None = None
        counters = checkpoint.counters if checkpoint else {}
        self.seconds: float = counters.get("seconds", 0.0)
        self.started = time.monotonic() - self.seconds
        self.failures: int = counters.get("failures", 0)
        self.train_examples: dict[str, int] = counters.get("train-examples", {})
        last_round = checkpoint.server_round if checkpoint else 0
        figures = federation.problem.figures
        write_atomically(path / "config.json", json.dumps(described(federation), indent=2) + "\n")
        self.metrics = CsvLog(
            path / "metrics.csv",
            [
                *("round", "seconds", "replies", "failures"),
                *(prefix + name for prefix in ("train-", "", CLIENT_MEAN, "global-") for name in figures),
            ],
            last_round,
        )
        self.clients = CsvLog(
            path / "clients.csv", ["round", "phase", "partition", "num-examples", *figures], last_round
        )
        refused = path / "failures.csv"
        self.refused = CsvLog(
            refused, ["round", "phase", "partition", "reason"], last_round if refused.exists() else 0
        )
        if federation.dataset.has_examples:
            plot_partitions(path / "partitions.png", federation.config)

    def on_round(self, result: RoundResult) -> None:
        self.failures += result.failures
        self.changed |= result.train.metrics.keys() | result.train.failures.keys()
        self.seconds = time.monotonic() - self.started
        self._note_train_examples(result)
        config = self.federation.config
        every, last = config.checkpoint_every, result.server_round == config.rounds
        with self._refusals_told():
            self._add_rows(result)
            self.unwritten = result
            if every and (last or result.server_round % every == 0):
                self.writer.wait()  # for the checkpoint before
                self._write(result)
                self._save_checkpoint(result)

    def finish(self) -> None:
        """Write what the last checkpoint did not, and draw and report what was done so far."""
        with self._refusals_told():
            try:
                if self.unwritten:
                    self._write(self.unwritten)
            finally:
                self.writer.close()
            plot_curves(self.path)
            report.write_report(self.path)

    def _refusals_told(self) -> AbstractContextManager[None]:
        return os_errors_told("run-dir", f"write to {str(self.path)!r}")

    def _add_rows(self, result: RoundResult) -> None:
        self.metrics.append(
            [
                {
                    "round": result.server_round,
                    "seconds": round(result.seconds, 3),
                    "replies": len(result.train.metrics),
                    "failures": result.failures,
                    **result.figures,
                }
            ]
        )
        phases = {"train": result.train} | (
            {"evaluate": result.evaluate} if result.evaluate is not result.train else {}
        )
        self.clients.append(
            [
                {"round": result.server_round, "phase": phase, "partition": partition, **metrics}
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

    def _write(self, result: RoundResult) -> None:
        """The model and the summary of a round, and the rows up to it."""
        arrays = {name: np.require(a.numpy(), requirements="C") for name, a in result.arrays.items()}
        model, summary = save(arrays), json.dumps(self._summary(result), indent=2) + "\n"

        def write() -> None:
            self.metrics.sync()
            self.clients.sync()
            self.refused.sync()
            write_atomically(self.path / "model.safetensors", model)
            write_atomically(self.path / "summary.json", summary)

        self.writer.do(write, len(model))
        self.unwritten = None

    def _save_checkpoint(self, result: RoundResult) -> None:
        strategy = self.federation.strategy
        counters = {
            "seconds": self.seconds,
            "failures": self.failures,
            "train-examples": self.train_examples,
        }
        checkpoint = Checkpoint(
            result.server_round,
            strategy.rule_state.updates,
            result.arrays,
            dict(strategy.rule_state.vectors),
            counters,
            self.federation.run_name,
            self.signature,
        )
        memories = ((partition, self.memory_of(partition)) for partition in sorted(self.changed))
        self.checkpoints.save(checkpoint, memories, self.writer)
        self.changed = set()

    def _note_train_examples(self, result: RoundResult) -> None:
        for partition, metrics in result.train.metrics.items():
            self.train_examples[str(partition)] = int(_number(metrics, "num-examples"))
        for partition, metrics in result.evaluate.metrics.items():
            if "train-examples" in metrics:
                self.train_examples[str(partition)] = int(_number(metrics, "train-examples"))

    def _summary(self, result: RoundResult) -> dict[str, object]:
        evaluated = result.evaluate.metrics
        config, problem = self.federation.config, self.federation.problem
        splits = held_out_splits(config, final=result.server_round == config.rounds).split(",")
        split = f"{splits[-1]}-" if len(splits) > 1 else ""
        return {
            "rounds": result.server_round,
            "seconds": round(self.seconds, 3),
            "seconds-per-round": round(self.seconds / result.server_round, 4),
            "global": result.global_metrics and figures_of(problem, result.global_metrics, split),
            "mean": figures_of(problem, result.means, split) if evaluated else None,
            "client-mean": figures_of(problem, result.means, CLIENT_MEAN + split) if evaluated else None,
            "clients": {
                str(partition): {
                    **figures_of(problem, metrics, split),
                    "num-examples": self.train_examples[str(partition)],
                }
                for partition, metrics in evaluated.items()
                if str(partition) in self.train_examples
            },
            "compared-by": problem.compared_by,
            "failures": self.failures,
        }


def _number(metrics: MetricRecord, key: str) -> float:
    value = metrics[key]
    assert not isinstance(value, list)
    return value


def described(federation: Federation) -> dict[str, object]:
    """The configuration with every setting of its algorithms, what inputs look like, and what it ran on."""
    versions = {name: version(name) for name in PACKAGES}
    return {
        **federation.config.to_user_config(),
        "resume": "",
        "shape": federation.dataset.spec.as_dataset(),
        "data": federation.dataset.digest,
        "client-names": client_names(federation.config),
        "versions": {"fedbn-flower": __version__, "python": platform.python_version(), **versions},
    }
