"""The folder a run leaves behind: configuration, metrics, summary, model and pictures."""

import contextlib
import json
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from flwr.app import MetricRecord
from safetensors.numpy import save

from clients import Groups

from .. import __version__
from ..assembly import client_names, held_out_splits
from ..config import RunConfig
from ..errors import UserError, not_allowed, os_errors_told
from ..files import CsvLog, remove_unfinished, write_atomically
from ..rounds import Federation, Observer, RoundResult
from .checkpoint import Checkpoint, CheckpointFolder
from .memory_file import signature
from .metrics import CLIENT_MEAN, figures_of
from .plots import plot_curves, plot_partitions

PACKAGES = ("flwr", "flwr-datasets", "ray", "torch", "torchvision", "numpy")


def prepare_run_folder(path: Path) -> None:
    """Make the folder.

    Raises
    ------
    UserError
        When it has something in it already, or cannot be made.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"run-dir: {str(path)!r} is not allowed; expected a new or empty folder")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_make(path, error) from error


def _cannot_make(path: Path, error: OSError) -> UserError:
    return UserError(f"run-dir: cannot make {str(path)!r} ({error.strerror})")


@contextlib.contextmanager
def run_folder_locked(config: RunConfig, path: Path, patience: float = 0.0) -> Iterator[None]:
    """Have a run's folder to oneself: new or empty, or the one to resume in.

    ``patience`` is for how many seconds to wait for another process to let go of it.

    Raises
    ------
    UserError
        When it has something in it already, cannot be made, or is another process's.
    """
    if not config.resume:
        prepare_run_folder(path)
    try:
        with FileLock(path / ".lock", timeout=patience):
            remove_unfinished(path)
            yield
    except Timeout as error:
        key = "resume" if config.resume else "run-dir"
        raise not_allowed(key, str(path), "a folder that no running process writes to") from error


def default_run_folder(under: Path = Path()) -> Path:
    """Make a folder ``runs/TIME``, one that nobody else was given, in the current directory by default.

    Raises
    ------
    UserError
        When it cannot be made.
    """
    first = path = under / "runs" / time.strftime("%Y%m%d-%H%M%S")
    number = 1
    while True:
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            number += 1
            path = first.with_name(f"{first.name}-{number}")
        except OSError as error:
            raise _cannot_make(path, error) from error


class RunFolder(Observer):
    """Writes a run's folder as the run goes on; what is there stands, whatever ends the run.

    ``metrics.csv`` has a row a round, ``clients.csv`` a row per (round, phase, partition) with what that
    client reported; rows are added after every round. ``model.safetensors`` and ``summary.json`` hold the
    model and the figures of one round: that of the last checkpoint, and in the end the last.
    What clients' means are is said in `metrics.held_out_means`.

    Parameters
    ----------
    path : Path
        A new or empty folder, or the one to resume in; see `run_folder_locked`.
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
            names = config.experiment, config.client, config.objective
            self.signature = signature(*names, federation.initial)
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
                self._write(result)
                self._save_checkpoint(result)

    def finish(self) -> None:
        """Write what the last checkpoint did not, and draw the curves of what was done so far."""
        with self._refusals_told():
            if self.unwritten:
                self._write(self.unwritten)
            plot_curves(self.path / "curves.png", self.path / "metrics.csv")

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
                for phase, report in phases.items()
                for partition, metrics in report.metrics.items()
            ]
        )

    def _write(self, result: RoundResult) -> None:
        """The model and the summary of a round, and the rows up to it."""
        self.metrics.sync()
        self.clients.sync()
        arrays = {name: np.require(a.numpy(), requirements="C") for name, a in result.arrays.items()}
        write_atomically(self.path / "model.safetensors", save(arrays))
        write_atomically(self.path / "summary.json", json.dumps(self._summary(result), indent=2) + "\n")
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
        self.checkpoints.save(checkpoint, memories)
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
