"""The base of every tracker: it never ends a run, and goes on in the same tracked run after a resume."""

import json
import logging
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

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
