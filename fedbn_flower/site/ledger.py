"""The ledger of a site: what was released of its data, in all runs, whatever a server calls them.

It is a file of JSON lines in the site's ``state-dir``, which only grows. A line is on the disk before what it
is for leaves, or is even computed.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock

from ..core.errors import UserError, os_errors_as_user_errors
from ..core.files import json_text, sync_folder
from ..core.free_memory import regular
from ..privacy.accounts import Release, composed_epsilon
from ..records.stored import DAMAGES

FOLDER, ENDING = "privacy", ".jsonl"


@dataclass(frozen=True)
class Entry:
    """One release.

    Parameters
    ----------
    run : str
        The name that the server gave to the run.
    flower_run : int
        Flower's own number of it, which is another one where a run is resumed.
    round : int
        The round, as the server says.
    what : str
        ``update``, or ``metrics`` of a split.
    notion : str
        What its noise protects: ``local`` or ``example``.
    noise, probability, count
        As in `Release`.
    delta : float
        For which ``epsilon`` is.
    epsilon : float
        Of everything in the ledger, with this.
    unit : str
        The column by whose values rows were protected together; empty where single examples or all were.
    """

    run: str
    flower_run: int
    round: int
    what: str
    notion: str
    noise: float
    probability: float
    count: int
    delta: float
    epsilon: float = 0.0
    unit: str = ""

    @property
    def release(self) -> Release:
        return Release(self.noise, self.probability, self.count)


def path_of_ledger(state_dir: Path, client: str) -> Path:
    """Return the ledger of a client in a node's ``state-dir``."""
    return state_dir / FOLDER / f"{client}{ENDING}"


@dataclass(frozen=True)
class SiteLedger:
    """Reads and extends a site's ledger; several processes may at once.

    Parameters
    ----------
    path : Path
        The file; the first charge makes it.
    """

    path: Path

    def entries(self) -> list[Entry]:
        """Return all entries. A last line that a kill has cut off is not one: what it was for never left.

        Raises
        ------
        UserError
            When the file cannot be read: nothing may leave then.
        """
        try:
            lines = regular(self.path).read_bytes().split(b"\n")[:-1] if self.path.exists() else []
            return [_entry(json.loads(line)) for line in lines]
        except DAMAGES as error:
            raise UserError(f"state-dir: the ledger {str(self.path)!r} cannot be read ({error})") from error

    def charge(self, new: Entry, check: Callable[[list[Entry], Entry], None]) -> Entry:
        """Write an entry to the disk, with the epsilon of all, once it has passed a check.

        Parameters
        ----------
        new : Entry
            The entry; its epsilon is found here.
        check : Callable
            Gets the entries so far and the new one, and raises where it may not be.

        Raises
        ------
        UserError
            When the ledger cannot be read or written. Then nothing may leave.
        """
        with os_errors_as_user_errors("state-dir", f"write to {str(self.path)!r}"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self.path}.lock"):
                entries = self.entries()
                spent = epsilon_of([*entries, new], new.delta)
                new = Entry(**{**asdict(new), "epsilon": spent})
                check(entries, new)
                self._append(new)
        return new

    def _append(self, new: Entry) -> None:
        is_new = not self.path.exists()
        with self.path.open("ab", buffering=0) as file:
            if whole := self.path.read_bytes():
                os.truncate(self.path, whole.rfind(b"\n") + 1)
            line = {name: value for name, value in asdict(new).items() if value or name != "unit"}
            file.write(json_text(line).encode() + b"\n")
            os.fsync(file.fileno())
        if is_new:
            sync_folder(self.path.parent)


def of_same_run(entries: Sequence[Entry], new: Entry) -> list[Entry]:
    """Return the entries of the new one's run, by either of its names, and of those that share one with it.

    A run that is resumed has another number, and a server that is not honest invents names.
    """
    names, numbers = {new.run}, {new.flower_run}
    while True:
        found = [entry for entry in entries if entry.run in names or entry.flower_run in numbers]
        before = len(names) + len(numbers)
        names |= {entry.run for entry in found}
        numbers |= {entry.flower_run for entry in found}
        if len(names) + len(numbers) == before:
            return found


def epsilon_of(entries: Iterable[Entry], delta: float) -> float:
    """Return the epsilon of entries together.

    It is infinite where examples and units, or several units, were protected: what protects one of them
    says nothing of another.
    """
    entries = list(entries)
    if len({entry.unit for entry in entries if entry.notion == "example"}) > 1:
        return math.inf
    return composed_epsilon((entry.release for entry in entries), delta)


def _entry(found: dict) -> Entry:
    """Return an entry of a line; an epsilon that is infinite is ``null`` there."""
    if found["epsilon"] is None:
        found["epsilon"] = float("inf")
    return Entry(**found)
