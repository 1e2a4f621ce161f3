"""The runs below a folder, read again as their files change: the folders are the truth, nothing is kept.

And how the sites of a consortium stand, as its annex says: asked now and then, not at each look.
"""

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from math import nan
from pathlib import Path
from time import monotonic
from typing import Any

from .. import annexes
from ..core.errors import UserError, not_allowed, os_errors_as_user_errors, unknown_name
from ..core.files import json_text, write_atomically
from ..core.ground.columns import POOLED, SECONDS
from ..core.ground.wire import LOSS
from ..core.stored import CONFIG, DAMAGES, damage_as_user_errors, json_object
from ..core.text import visible
from ..records.summary import SUMMARY_FILE
from ..results.manifest import NOT_KEYS
from ..results.rare_event import AUROC, Candidate, data_of, leading_by_round, rare_data
from ..results.report.tables import Table
from ..results.run_directory import LOCK, lock_holders
from ..results.run_reader import EVERY_RUN, Run
from .query import Query, number_in

NOTES = "watch.json"
"""The file of a run's folder with the star and the note of whoever watches; no run reads it."""
METRICS = "metrics.csv"
FILES = (CONFIG, SUMMARY_FILE, METRICS, "clients.csv", "failures.csv", NOTES, LOCK)
"""The files that say how a run goes."""
AGAIN = 0.5
"""Seconds for which the folders are not looked at again."""
PAGE = os.sysconf("SC_PAGE_SIZE")
RECENT = 10
"""Rounds from whose seconds the time left follows."""
DOWN = ":down"
Stamp = tuple[tuple[int, int, int], ...]
GONE = (0, 0, 0)
KIND, NAME, FILE = "federations", "consortium", "consortium.toml"
"""What an annex brings, called with a consortium's folder; and the file that such a folder has."""
ASKED_AGAIN = 30
"""Seconds for which no consortium is asked again."""


@dataclass(frozen=True, eq=False)
class Entry:
    """A run by its name, the path of its folder below the one that is watched; another one if it changes."""

    name: str
    run: Run
    notes: Mapping[str, Any]
    is_locked: bool
    is_rare: bool = False
    """Whether the event of its data is rare; see `led_alike`."""

    @property
    def state(self) -> str:
        """``running`` if a process of this machine holds the lock; ``failed``, ``ended`` or ``stopped``.

        It has failed if no round had enough usable replies, or its model diverged.
        """
        if self.is_locked:
            return "running"
        rows, least = self.run.metrics, int(self.run.config.get("min-replies") or 1)
        learnt = any(int(row.get("replies") or least) >= least for row in rows)
        if self.run.has_diverged or (rows and self.run.has_ended and not learnt):
            return "failed"
        return "ended" if self.run.has_ended and self.run.summary.rounds else "stopped"

    @property
    def seconds_left(self) -> float | None:
        """An estimate from the last `RECENT` rounds; None of a run that does not go on, or has no rounds."""
        recent = [float(row[SECONDS]) for row in self.run.metrics[-RECENT:] if row.get(SECONDS)]
        if self.state != "running" or not recent:
            return None
        return max(0, self.run.rounds - self.run.rounds_done) * sum(recent) / len(recent)

    @property
    def memory(self) -> int:
        """Bytes of memory that the process has which holds the lock, without other processes of a pool."""
        with suppress(OSError, LookupError):
            process = lock_holders()[(self.run.folder / LOCK).stat().st_ino]
            return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE
        return 0

    @cached_property
    def figures(self) -> dict[str, float | None]:
        """What was measured: the last round's, and of a run that has ended what its summary is of."""
        row, summary = [{}, *self.run.metrics][-1], self.run.summary
        measured = {name: number_in(text) for name, text in row.items() if text and name != "round"}
        totals = {name: self.run.total(name) for name in (SECONDS, "failures") if name in row}
        of_event = {} if self._auroc is None else {POOLED + AUROC: self._auroc}
        if summary.rounds != self.run.rounds_done:
            return {**measured, **totals, **of_event}
        totals |= {SECONDS: summary.seconds} if summary.seconds else {}
        return {**measured, **totals, **summary.main, **of_event}

    @cached_property
    def main_metric(self) -> str:
        """The figure by which runs are compared.

        In place of the accuracy of a rare event it is the AUROC of all cases, else what leads `by_round`.
        """
        if not self._is_by_rare_accuracy:
            return self.run.main_metric
        return self.by_round if self._auroc is None else POOLED + AUROC

    @property
    def _is_by_rare_accuracy(self) -> bool:
        return self.is_rare and self.run.main_metric == "accuracy"

    @cached_property
    def by_round(self) -> str:
        """The column of ``metrics.csv`` that leads what is shown by round."""
        return leading_by_round(self.run.main_metric, self.is_rare, self.columns)

    @cached_property
    def columns(self) -> set[str]:
        """The columns of ``metrics.csv`` that have a value."""
        return {name for row in self.run.metrics for name, text in row.items() if text}

    @cached_property
    def candidate(self) -> Candidate:
        """What its cases say of its event; damaged ones are as if there were none."""
        try:
            return Candidate.of(self.run)
        except DAMAGES:
            return Candidate(self.run, nan, "cases are damaged")

    @cached_property
    def _auroc(self) -> float | None:
        is_known = self.run.has_ended and self._is_by_rare_accuracy and not self.candidate.lacks
        return (self.candidate.led.summary.pooled or {}).get(AUROC) if is_known else None

    @cached_property
    def keys(self) -> dict[str, Any]:
        """The run's own keys, without what says only where it is."""
        return {key: value for key, value in self.run.config.items() if key not in (*NOT_KEYS, "run-dir")}

    @cached_property
    def values(self) -> dict[str, Any]:
        """Everything by which runs are found, sorted and shown.

        Of a key and a figure of one name, such as ``loss``, it is the key's value only if that is a number.
        """
        figures = {LOSS, *self.figures}
        keys = {k: v for k, v in self.keys.items() if k not in figures or number_in(v) is not None}
        own = {"run": self.name, "state": self.state, "round": self.run.rounds_done}
        said = {"note": self.notes.get("note", ""), "starred": self.notes.get("starred") is True}
        return {**self.figures, **keys, **own, **said}


@dataclass
class Index:
    """The runs below a folder; the folder may be a run's own.

    Attributes
    ----------
    damaged : dict[str, str]
        What is wrong with folders that cannot be read, by name.
    stamp : int
        Another one whenever anything has changed.
    """

    folder: Path
    key: str = "runs"
    entries: dict[str, Entry] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    stamp: int = 0
    _stamps: dict[Path, Stamp] = field(default_factory=dict)
    _looked: float = -AGAIN
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def refresh(self) -> None:
        """Read what is new or has changed, and forget what has gone."""
        with self._lock:
            if monotonic() - self._looked < AGAIN:
                return
            locked = lock_holders()
            if (found := {path: _stamp(path, locked) for path in self._folders()}) != self._stamps:
                self._read(found)
            self._looked = monotonic()

    def _read(self, found: dict[Path, Stamp]) -> None:
        entries: dict[str, Entry] = {}
        damaged: dict[str, str] = {}
        for path, stamp in sorted(found.items()):
            name = path.relative_to(self.folder).as_posix() if path != self.folder else path.resolve().name
            name = visible(name)
            try:
                is_same = stamp == self._stamps.get(path) and name in self.entries
                entries[name] = self.entries[name] if is_same else self._entry(name, path, stamp[-1] != GONE)
            except UserError as error:
                damaged[name] = str(error)
        self.entries, self.damaged = led_alike(entries), damaged
        self._stamps, self.stamp = found, self.stamp + 1

    def _entry(self, name: str, folder: Path, is_locked: bool) -> Entry:
        """Read a run's folder; raise a UserError where a file in it is damaged."""
        run = Run.read(folder, self.key, EVERY_RUN)
        with damage_as_user_errors(self.key, folder):
            notes = json_object(folder / NOTES) if (folder / NOTES).exists() else {}
            entry = Entry(name, run, notes, is_locked)
            entry.values  # noqa: B018 - finds what is damaged
        return entry

    def _folders(self) -> Iterator[Path]:
        """Yield the folders of runs; nothing is looked for inside of one."""
        for root, folders, files in os.walk(self.folder):
            if {CONFIG, METRICS} <= {*files}:
                folders.clear()
                yield Path(root)

    def names(self) -> list[str]:
        """Return the names of all values that any run has."""
        return list(dict.fromkeys(name for entry in self.entries.values() for name in entry.values))

    def chosen(self, where: str = "", sort: str = "") -> list[Entry]:
        """Return the runs that a filter lets through, sorted by a key or figure; starred ones come first.

        Those that lack the key come last.

        Raises
        ------
        UserError
            When filter or key cannot be understood, or no run has the key.
        """
        query, entries, known = Query.parse(where), list(self.entries.values()), self.names()
        key = sort.removesuffix(DOWN)
        for asked, names in (("where", query.keys), ("sort", {key} - {""})):
            if entries and (unknown := sorted(names - {*known})):
                raise unknown_name(asked, unknown[0], known)
        found = [e for e in sorted(entries, key=lambda e: not e.values["starred"]) if query.test(e.values)]
        found.sort(key=lambda entry: _order(entry.values.get(key)), reverse=sort.endswith(DOWN))
        return sorted(found, key=lambda entry: entry.values.get(key) in (None, ""))

    def write_notes(self, name: str, notes: Mapping[str, Any]) -> None:
        """Change a run's star or note, in its folder.

        Raises
        ------
        KeyError
            When there is no such run.
        UserError
            When the file cannot be written.
        """
        entry = self.entries[name]
        with os_errors_as_user_errors("note", f"write {name}/{NOTES}"):
            write_atomically(entry.run.folder / NOTES, json_text({**entry.notes, **notes}) + "\n")
        self._looked = -AGAIN


def led_alike(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return runs of which those of the same data are all of a rare event, or none."""
    rare = rare_data((entry.run, partial(getattr, entry, "candidate")) for entry in entries.values())
    wanted = {name: data_of(entry.run) in rare for name, entry in entries.items()}
    return {
        name: entry if entry.is_rare == wanted[name] else replace(entry, is_rare=wanted[name])
        for name, entry in entries.items()
    }


def differing(entries: Sequence[Entry]) -> list[str]:
    """Return the keys in which runs differ, in the order of their configurations."""
    keys = dict.fromkeys(key for entry in entries for key in entry.keys)
    return [key for key in keys if len({str(entry.keys.get(key)) for entry in entries}) > 1]


def _order(value: Any) -> tuple[bool, float, str]:
    number = number_in(value)
    return number is None, number or 0.0, str(value)


def _stamp(folder: Path, locked: Collection[int]) -> Stamp:
    """Return time, size and number of each file; `GONE` of one that is not there, and of a lock not held."""
    found = dict.fromkeys(FILES, GONE)
    for name in FILES:
        with suppress(OSError):
            status = (folder / name).stat()
            if name != LOCK or status.st_ino in locked:
                found[name] = status.st_mtime_ns, status.st_size, status.st_ino
    return tuple(found.values())


class Standing:
    """What is said of a consortium: tables by their titles."""

    def __init__(self, ask: Callable[[Path], Mapping[str, Table]], folder: Path) -> None:
        self.folder = folder
        self.tables = lru_cache(1)(lambda stamp: ask(folder))

    @property
    def stamp(self) -> int:
        """With which to ask for the tables."""
        return int(monotonic() // ASKED_AGAIN)


def standing_of(asked: Path | None, watched: Path) -> Standing | None:
    """Return what is said of the consortium of a folder: the one asked for, else the one that is watched.

    None if the watched one is no consortium's, or the annex is not there.

    Raises
    ------
    UserError
        When that is so of the folder that is asked for.
    """
    if (folder := asked or watched).joinpath(FILE).is_file():
        ask = annexes.load(KIND, NAME) if asked else annexes.brought(KIND).get(NAME)
        return Standing(ask, folder) if ask else None
    if asked:
        raise not_allowed(NAME, str(asked), f"a folder with {FILE}")
    return None
