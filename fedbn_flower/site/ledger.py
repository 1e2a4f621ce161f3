"""A site's privacy ledger: every release of its data, across all runs, whatever a server calls them.

An append-only file of JSON lines in the site's ``state-dir``. A line is on disk before the release that it
records is sent, or even computed.
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
from ..core.stored import DAMAGES
from ..privacy.accounts import Release, composed_epsilon

FOLDER, ENDING = "privacy", ".jsonl"


@dataclass(frozen=True)
class Entry:
    """One release.

    Parameters
    ----------
    run : str
        The name that the server gave to the run.
    flower_run : int
        Flower's run id, which changes when a run is resumed.
    round : int
        The round, as reported by the server.
    what : str
        ``update``, or ``metrics`` of a split.
    notion : str
        The privacy notion: ``local`` or ``example``.
    noise, probability, count
        As in `Release`.
    delta : float
        The delta at which ``epsilon`` holds.
    epsilon : float
        Of all entries up to and including this one, composed.
    unit : str
        The column whose values define the privacy unit; empty if the unit is an example or the whole client.
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
    """Reads and extends a site's ledger; safe with several processes at once.

    Parameters
    ----------
    path : Path
        The file; the first charge creates it.
    """

    path: Path

    def entries(self) -> list[Entry]:
        """Return all entries, except a last line that was cut off by a kill: its release never left the site.

        Raises
        ------
        UserError
            When the file cannot be read; then nothing may be released.
        """
        try:
            lines = regular(self.path).read_bytes().split(b"\n")[:-1] if self.path.exists() else []
            return [_entry(json.loads(line)) for line in lines]
        except DAMAGES as error:
            raise UserError(f"state-dir: the ledger {str(self.path)!r} cannot be read ({error})") from error

    def charge(self, new: Entry, check: Callable[[list[Entry], Entry], None]) -> Entry:
        """Write an entry to disk if it passes a check, with the composed epsilon of all entries.

        Parameters
        ----------
        new : Entry
            The entry; its epsilon is computed here.
        check : Callable
            Called with the entries so far and the new one; raises if the release is not allowed.

        Raises
        ------
        UserError
            When the ledger cannot be read or written; then nothing may be released.
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
    """Return the entries of the same run: those linked to the new one by a shared name or Flower run id.

    A resumed run has another id, and a dishonest server may invent names.
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
    """Return the composed epsilon of entries.

    It is infinite if they protect different privacy units: guarantees for one unit do not compose with those
    for another.
    """
    entries = list(entries)
    if len({entry.unit for entry in entries if entry.notion == "example"}) > 1:
        return math.inf
    return composed_epsilon((entry.release for entry in entries), delta)


def _entry(found: dict) -> Entry:
    """Return the entry of a parsed line; an infinite epsilon is ``null`` in JSON."""
    if found["epsilon"] is None:
        found["epsilon"] = float("inf")
    return Entry(**found)
