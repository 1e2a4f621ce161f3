"""MLflow."""

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from ..records.events import RunInfo
from .base import PROJECT, Tracker

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
