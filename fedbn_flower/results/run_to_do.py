"""How much of a run its folder has."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..config.run_config import RunConfig
from ..core.free_memory import regular
from ..records.stored import CONFIG, damage_as_user_errors
from ..records.summary import Summary

DONE = ".done"
"""The file that marks a completed run of a sweep; a failed run may have reached its last round too."""


@dataclass(frozen=True)
class RunToDo:
    """A run and its folder, in which it may have begun.

    Parameters
    ----------
    name : str
        The name of its folder.
    config : RunConfig
        Its configuration; ``run-dir`` is its folder.
    """

    name: str
    config: RunConfig

    @property
    def folder(self) -> Path:
        return Path(self.config.run_dir)

    @cached_property
    def started(self) -> bool:
        """Whether its folder has a run that can be resumed."""
        return (self.folder / CONFIG).exists()

    @property
    def rounds_done(self) -> int:
        """The number of rounds in ``metrics.csv``."""
        metrics = self.folder / "metrics.csv"
        if not metrics.exists():
            return 0
        with damage_as_user_errors("resume", self.folder):
            return max(0, regular(metrics).read_bytes().count(b"\n") - 1)

    @property
    def summary(self) -> Summary | None:
        """The summary of a completed run with all its rounds, else None."""
        if not (self.folder / DONE).exists():
            return None
        summary = Summary.read(self.folder, "resume")
        done = summary and (summary.rounds >= self.config.rounds or summary.stopped)
        return summary if done else None
