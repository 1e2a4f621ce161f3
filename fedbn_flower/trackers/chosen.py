"""The trackers, and the one that a run asks for."""

import json
import logging
import os
import re
import textwrap
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from ..config.run_config import RunConfig
from ..core.errors import not_allowed
from ..core.files import json_text, write_atomically
from ..records.events import Observer, RoundResult, RunInfo
from ..results.round_tables import round_costs

LOGGER = logging.getLogger("flwr.fedbn")

IDS = "trackers.json"
"""The file of a run's folder with the run's id in each tracker, by the tracker's name."""
PROJECT = "fedbn-flower"
"""Of MLflow the experiment, of Weights & Biases the project, unless their environment variables name one."""
LONGEST = 300  # characters of a failure that are told


class Tracker(Observer):
    """Sends configuration and rounds to a tracker of experiments.

    What a subclass's method raises is told in one line; the run then goes on without this tracker.
    """

    name: ClassVar[str]

    def start(self, info: RunInfo, folder: Path, earlier: str | None) -> str | None:
        """Begin a tracked run, or go on with that of the id ``earlier``; return its id, if there is one."""
        raise NotImplementedError

    def log(self, server_round: int, numbers: Mapping[str, float]) -> None:
        """Send the numbers of a round, whose step is the round's number."""
        raise NotImplementedError

    def end(self, folder: Path, failed: bool) -> None:
        """End the tracked run. The run's folder is complete."""

    def on_start(self, info: RunInfo) -> None:
        assert info.folder
        self._folder, self._failed = info.folder, False
        self._try(self._start, info)

    def on_round(self, result: RoundResult) -> None:
        self.send(result.server_round, numbers_of(result))

    def send(self, server_round: int, numbers: Mapping[str, float]) -> None:
        """Send the numbers of a round, unless something has failed before."""
        self._try(self.log, server_round, numbers)

    def on_end(self, summary: Mapping[str, Any] | None, error: BaseException | None) -> None:
        self._try(self.end, self._folder, error is not None)

    def _start(self, info: RunInfo) -> None:
        path = self._folder / IDS
        ids: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        found = self.start(info, self._folder, ids.get(self.name))
        if found and found != ids.get(self.name):
            write_atomically(path, json_text({**ids, self.name: found}, indent=2) + "\n")

    def _try(self, call: Callable[..., None], *arguments: object) -> None:
        if self._failed:
            return
        try:
            call(*arguments)
        except Exception as error:  # trackers raise whatever their servers make them raise
            self._failed = True
            why = textwrap.shorten(f"{type(error).__name__}: {error}", LONGEST)
            LOGGER.warning("track: %s failed, and the run goes on without it: %s", self.name, why)


def numbers_of(result: RoundResult) -> dict[str, float]:
    """Return the numbers of a round under their names in ``metrics.csv``, and the spread of all metrics."""
    return {
        "seconds": result.seconds,
        "replies": float(len(result.train.metrics)),
        "failures": float(result.failures),
        **result.metrics,
        **round_costs(result),
        **result.noted,
        **result.spread,
    }


class WeightsAndBiases(Tracker):
    """Writes into the run's folder, and sends what it writes unless it is offline.

    It is offline where ``WANDB_MODE`` says so, or where there is no API key, instead of asking for one.
    """

    name: ClassVar = "wandb"

    def start(self, info: RunInfo, folder: Path, earlier: str | None) -> str:
        import wandb  # seconds, and an extra

        online = "WANDB_MODE" in os.environ or wandb.login(prompt=False, verify=False)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=folder.name,
            dir=str(folder),
            id=earlier,
            resume="allow" if earlier else None,
            mode=None if online else "offline",
            config=dict(info.config),
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )
        return str(self._run.id)

    def log(self, server_round: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=server_round)

    def end(self, folder: Path, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


FOLDER = "tensorboard"


class TensorBoard(Tracker):
    """Writes scalars into the run's folder.

    What an earlier process wrote of the first round and later ones, TensorBoard forgets.
    """

    name: ClassVar = "tensorboard"

    def start(self, info: RunInfo, folder: Path, earlier: str | None) -> None:
        from torch.utils.tensorboard import SummaryWriter  # seconds, and an extra

        self._writer = SummaryWriter(folder / FOLDER, purge_step=info.first_round)

    def log(self, server_round: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, server_round)
        self._writer.flush()

    def end(self, folder: Path, failed: bool) -> None:
        self._writer.close()


RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
MOST_PARAMETERS = 100  # of a call
ARTIFACT = "report.html"


class MLflow(Tracker):
    """Writes to the tracking store that MLflow's own variables name: a server, a database or a folder."""

    name: ClassVar = "mlflow"

    def start(self, info: RunInfo, folder: Path, earlier: str | None) -> str:
        os.environ.setdefault(RETRIES, "2")  # a server that is gone would hold up the run for minutes
        from mlflow import MlflowClient  # seconds, and an extra
        from mlflow.entities import Param

        self._client, self._last = MlflowClient(), 0
        if earlier:
            steps = [one.step for one in self._client.get_metric_history(earlier, "seconds")]
            self._run, self._last = earlier, max(steps, default=0)
            self._client.update_run(earlier, status="RUNNING")
            return earlier
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        self._run = str(self._client.create_run(number, run_name=folder.name).info.run_id)
        parameters = [Param(key, str(value)) for key, value in info.config.items()]
        for first in range(0, len(parameters), MOST_PARAMETERS):
            self._client.log_batch(self._run, params=parameters[first : first + MOST_PARAMETERS])
        return self._run

    def log(self, server_round: int, numbers: Mapping[str, float]) -> None:
        if server_round <= self._last:  # sent before the run was killed; the bits are the same
            return
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(_allowed(name), value, now, server_round) for name, value in numbers.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def end(self, folder: Path, failed: bool) -> None:
        if (folder / ARTIFACT).exists():
            self._client.log_artifact(self._run, str(folder / ARTIFACT))
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")


def _allowed(name: str) -> str:
    """Return a metric's name with an underscore for each character that MLflow refuses."""
    return re.sub(r"[^\w\-. ]", "_", name)


TRACKERS: dict[str, type[Tracker]] = {cls.name: cls for cls in (MLflow, TensorBoard, WeightsAndBiases)}
"""Every tracker by the name of its package and extra."""


def check_installed(config: RunConfig) -> None:
    """Refuse a tracker whose package is not there.

    Raises
    ------
    UserError
        With how to install it.
    """
    if config.track in TRACKERS and not _is_installed(config.track):
        install = f"pip install 'fedbn-flower[{config.track}]'"
        raise not_allowed("track", config.track, f"none, for {config.track} is not installed: {install}")


def trackers(config: RunConfig) -> list[Observer]:
    """Return the tracker that the configuration asks for, if any."""
    return [TRACKERS[config.track]()] if config.track in TRACKERS else []


def _is_installed(package: str) -> bool:
    spec = find_spec(package)
    return spec is not None and spec.origin is not None  # a folder wandb/ has a specification, too
