"""The ledger of a run: what it has published, written to the disk before that leaves the server.

``privacy.jsonl`` has the terms of the run in its first line, and a line for every vector that was published.
A line is on the disk before the vector is used. So a run that is killed has at most been charged for what
never left, and never the other way round.

The ledger of a site: what was released of its data, in all runs, whatever a server calls them.

It is a file of JSON lines in the site's ``state-dir``, which only grows. A line is on the disk before what it
is for leaves, or is even computed.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from ..core.errors import RunFailed, UserError, os_errors_as_user_errors
from ..core.files import json_text, sync_folder, write_atomically
from ..core.free_memory import regular
from ..records.stored import DAMAGES
from .accounts import Release, composed_epsilon

NAME = "privacy.jsonl"


@dataclass(frozen=True)
class Charge:
    """One published vector.

    Parameters
    ----------
    round, attempt : int
        The round, and which attempt at it: more than 1 after a resume that could not repeat the first.
    clip, next_clip : float
        C of the round, and that of the next as far as it is known: a round that is charged before clients
        are asked has its own in both.
    epsilon : float
        Epsilon of all that was published, with this.
    digest : str
        SHA-256 of what was published.
    clients : tuple[int, ...]
        The partition ids of those that were asked, where epsilon is each client's own or clients take turns.
    mark : str
        Of the sum whose noise this is, see `Key.mark_of`; empty under a public key, or where clients add it.
    """

    round: int
    attempt: int
    clip: float
    next_clip: float
    epsilon: float
    digest: str
    clients: tuple[int, ...] = ()
    mark: str = ""


class Ledger:
    """Reads and extends a run's ``privacy.jsonl``.

    Parameters
    ----------
    path : Path
        The file.
    terms : Mapping[str, Any]
        What the noise was calibrated for, for a new file.
    key : str
        The key that names its folder, for messages.

    Raises
    ------
    UserError
        When there is a file that cannot be read.
    """

    def __init__(self, path: Path, terms: Mapping[str, Any], key: str = "run-dir") -> None:
        self.path = path
        self.key = key
        self.terms = dict(terms)
        self.charges: list[Charge] = []
        if path.exists():
            self._read()
        else:
            write_atomically(path, json_text(self.terms) + "\n")
            sync_folder(path.parent)

    @property
    def epsilon(self) -> float:
        """Epsilon of all that was published."""
        return self.charges[-1].epsilon if self.charges else 0.0

    def of_round(self, server_round: int) -> list[Charge]:
        """Return what was published in a round, by attempt."""
        return [charge for charge in self.charges if charge.round == server_round]

    def last_of(self, server_round: int) -> Charge | None:
        """Return the last of `of_round`, if there is one."""
        return next(iter(reversed(self.of_round(server_round))), None)

    def charge(self, new: Charge) -> None:
        """Write a charge to the disk; one that is there already is the same vector, and costs nothing.

        Raises
        ------
        RunFailed
            When this attempt has published another vector: both with the same noise would tell what was added
            up.
        UserError
            When it cannot be written. Then nothing may leave.
        """
        for known in self.of_round(new.round):
            if known.attempt == new.attempt:
                if known.digest != new.digest:
                    raise RunFailed(
                        f"privacy: round {new.round} differs from what it has published before, and a second "
                        "result under the same noise would take the noise off; begin a new run"
                    )
                return
        with (
            os_errors_as_user_errors(self.key, f"write to {str(self.path)!r}"),
            self.path.open("ab", buffering=0) as file,
        ):
            file.write(_line(new).encode())
            os.fsync(file.fileno())
        self.charges.append(new)

    def _read(self) -> None:
        """Read the file; drop a last line that a kill has cut off: what it is for has not left."""
        try:
            *lines, rest = regular(self.path).read_text().split("\n")
            terms, *charges = map(json.loads, lines)
            self.terms, self.charges = dict(terms), [_charge(**charge) for charge in charges]
        except DAMAGES as error:
            raise UserError(f"resume: the ledger {str(self.path)!r} cannot be read ({error})") from error
        if rest:
            write_atomically(self.path, _text(self.terms, self.charges))
            sync_folder(self.path.parent)


def _text(terms: Mapping[str, Any], charges: Iterable[Charge]) -> str:
    return "".join([json_text(terms) + "\n", *map(_line, charges)])


def _line(charge: Charge) -> str:
    left_out = {"clients": (), "mark": ""}
    return json_text({n: value for n, value in asdict(charge).items() if left_out.get(n) != value}) + "\n"


def _charge(clients: Iterable[int] = (), **values: Any) -> Charge:
    return Charge(clients=tuple(clients), **values)


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
