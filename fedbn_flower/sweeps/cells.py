"""The runs of a sweep, a folder each, and how far each has come."""

import json
import shutil
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.run_config import RunConfig
from ..core.errors import RunFailed, UserError, not_allowed
from ..core.files import write_atomically
from ..federation.federation import Federation
from ..records.events import Observer
from ..results.checkpoints.checkpoint_folder import BEST, LAST
from ..results.progress import cell_name
from ..results.resume import check_unchanged, checkpoints_of, stopped_early
from ..results.run_directory import run_folder_locked
from ..runtime.simulation import simulate

if TYPE_CHECKING:
    from ..runtime.ray.pool import RayPool

DONE = ".done"
"""A file in the folder of a run that did its work; the last round may also be the end of one that failed."""
PATIENCE = 10.0
"""Seconds in which what a killed sweep has left running ends."""

Outcome = tuple[dict[str, Any] | None, str]
"""A run's summary, or None and what went wrong."""


@dataclass(frozen=True)
class Cell:
    """A run of a sweep.

    Parameters
    ----------
    name : str
        Its folder's name.
    config : RunConfig
        With its own folder as ``run-dir``.
    """

    name: str
    config: RunConfig

    @property
    def place(self) -> Path:
        return Path(self.config.run_dir)

    @cached_property
    def begun(self) -> bool:
        """Whether there is something in its folder to go on with."""
        return (self.place / "config.json").exists()

    @property
    def rounds_done(self) -> int:
        """Rounds that have a row in its metrics."""
        metrics = self.place / "metrics.csv"
        return max(0, metrics.read_text().count("\n") - 1) if metrics.exists() else 0

    @property
    def summary(self) -> dict[str, Any] | None:
        """Of the run that did all its rounds, if it has."""
        if not (self.place / DONE).exists():
            return None
        summary: dict[str, Any] = json.loads((self.place / "summary.json").read_text())
        return summary if summary["rounds"] >= self.config.rounds or summary["stopped"] else None

    def check(self) -> None:
        """Refuse a folder with another configuration's run, or with more rounds than are asked for.

        Raises
        ------
        UserError
            See `check_unchanged`.
        """
        if not self.begun:
            return
        try:
            check_unchanged(Federation(self._resumed()))
            if (summary := self.summary) and summary["rounds"] > self.config.rounds:
                raise not_allowed(
                    "rounds", self.config.rounds, f"at least the {summary['rounds']} done so far"
                )
        except UserError as error:
            raise UserError(f"{error} ({self.place})") from None

    def ready(self) -> RunConfig:
        """The configuration that goes on with what is there, or starts anew.

        Raises
        ------
        UserError
            When another process writes to the folder.
        """
        if not self.begun:
            if self.place.exists():  # a kill came before anything was written
                shutil.rmtree(self.place)
            return self.config
        resumed = self._resumed()
        with run_folder_locked(resumed, self.place, PATIENCE):
            checkpoint = checkpoints_of(resumed).load()
            ended = checkpoint and (
                checkpoint.server_round >= self.config.rounds or stopped_early(checkpoint)
            )
            for name in (LAST, BEST) if ended else ():  # it failed in the end
                shutil.rmtree(self.place / name, ignore_errors=True)
        return resumed

    def _resumed(self) -> RunConfig:
        return self.config.model_copy(update={"resume": self.config.run_dir})


def cells_of(configs: Iterable[RunConfig], keys: Sequence[str], folder: Path) -> list[Cell]:
    """A cell for every configuration, in the sweep's folder."""
    names = ((cell_name(config, keys), config) for config in configs)
    return [Cell(name, c.model_copy(update={"run_dir": str(folder / name)})) for name, c in names]


def attempt(config: RunConfig, pool: "RayPool | None" = None, observers: Iterable[Observer] = ()) -> Outcome:
    """Run one cell in its folder; whatever goes wrong is told, and stops no other."""
    place = Path(config.run_dir)
    try:
        (place / DONE).unlink(missing_ok=True)
        summary = simulate(Federation(config), place, pool, observers)
        write_atomically(place / DONE, "")
    except (RunFailed, UserError) as error:
        return None, str(error)
    except Exception as error:  # of somebody's own algorithm
        traceback.print_exc()
        return None, " ".join(f"{type(error).__name__}: {error}".split())
    return summary, ""
