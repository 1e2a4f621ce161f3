"""The runs of a sweep: one folder each, and its state."""

import shutil
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedbn_flower.clients import FORMER_NAMES

from ..config.gone import GONE
from ..config.making import run_config
from ..config.run_config import RunConfig
from ..core.errors import RunFailed, UserError, not_allowed
from ..core.files import write_atomically
from ..core.stored import CONFIG
from ..records.events import Observer
from ..records.summary import Summary
from ..results.checkpoints.checkpoint_folder import BEST, LAST
from ..results.manifest import read_configuration
from ..results.progress import cell_name
from ..results.resume import DONE, RunToDo, as_before, check_unchanged, checkpoints_of, why_stopped
from ..results.run_directory import run_folder_locked
from ..runtime.simulation import simulate
from ..server.federation import Federation

if TYPE_CHECKING:
    from ..runtime.pools import Pool

LOCK_TIMEOUT = 10.0
"""Seconds to wait until the processes of a killed sweep have ended."""

Outcome = tuple[Summary | None, str]
"""A run's summary and an empty text, or None and the error message."""


class Cell(RunToDo):
    """A run of a sweep."""

    def check(self) -> None:
        """Refuse a folder with a run of another configuration, or of more rounds than requested.

        Raises
        ------
        UserError
            See `check_unchanged`.
        """
        if not self.started:
            return
        try:
            check_unchanged(Federation(self._resumed()))
            if (summary := self.summary) and summary.rounds > self.config.rounds:
                raise not_allowed("rounds", self.config.rounds, f"at least the {summary.rounds} done so far")
        except UserError as error:
            raise UserError(f"{error} ({self.folder})") from None

    def prepare(self) -> RunConfig:
        """Return the configuration that resumes the run in its folder, or starts it.

        Raises
        ------
        UserError
            When another process writes to the folder.
        """
        if not self.started:
            if self.folder.exists():  # killed before anything was written
                shutil.rmtree(self.folder)
            return self.config
        resumed = self._resumed()
        with run_folder_locked(resumed, self.folder, LOCK_TIMEOUT):
            checkpoint = checkpoints_of(resumed).load()
            ended = checkpoint and (checkpoint.server_round >= self.config.rounds or why_stopped(checkpoint))
            for name in (LAST, BEST) if ended else ():  # it failed after its last round
                shutil.rmtree(self.folder / name, ignore_errors=True)
        return resumed

    def _resumed(self) -> RunConfig:
        return self.config.model_copy(update={"resume": self.config.run_dir})


def cells_of(configs: Iterable[RunConfig], keys: Sequence[str], folder: Path) -> list[Cell]:
    """Return a cell for each configuration, in the sweep's folder."""
    before = _names_before(keys, folder)
    cells = ((before.get(name, name), c) for c in configs for name in [cell_name(c, keys)])
    return [Cell(name, c.model_copy(update={"run_dir": str(folder / name)})) for name, c in cells]


def _names_before(keys: Sequence[str], folder: Path) -> dict[str, str]:
    """Return the names of cells with a former key or name, by what they would be called now."""
    words = [
        *(f"-{key}=" for key in GONE),
        *(f"-{name}-" for names in FORMER_NAMES.values() for name in names),
    ]
    old = {path.parent for word in words for path in folder.glob(f"*{word}*/{CONFIG}")}
    return {cell_name(run_config(as_before(read_configuration(cell))), keys): cell.name for cell in old}


def run_cell(config: RunConfig, pool: "Pool | None" = None, observers: Iterable[Observer] = ()) -> Outcome:
    """Run one cell in its folder; errors are returned, so that the other cells still run."""
    folder = Path(config.run_dir)
    try:
        (folder / DONE).unlink(missing_ok=True)
        summary = simulate(Federation(config), folder, pool, observers)
        write_atomically(folder / DONE, "")
    except (RunFailed, UserError) as error:
        return None, str(error)
    except Exception as error:  # from a user's algorithm
        traceback.print_exc()
        return None, " ".join(f"{type(error).__name__}: {error}".split())
    return summary, ""
