"""Walk a data folder: one way for the readers and for the cache's fingerprint."""

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from ..core.free_memory import regular
from ..core.notes import Note
from ..core.text import number_of, quoted
from ..data.scans import series_folders

MAX_SHOWN = 3
NO_DATA = frozenset({"__macosx", "@eadir", "__pycache__", "$recycle.bin", "system volume information"})
"""Folders that systems leave behind, in lower case: archives of macOS, thumbnails, caches."""
NO_FILES = frozenset({"thumbs.db", "desktop.ini"})
"""Files that systems leave behind, in lower case."""


class Walk(NamedTuple):
    """What is below a folder.

    Parameters
    ----------
    root : Path
        The folder.
    files : tuple[Path, ...]
        Its files, sorted by path; links to files that do not exist are among them. A folder with the slices
        of a DICOM series stands for them, as one file.
    folders : tuple[Path, ...]
        The folders below it, sorted by path, empty ones too.
    loops : tuple[Path, ...]
        Links to a folder that they are in; they are not entered.
    other_series : tuple[Path, ...]
        DICOM files beside the slices of a larger series: scouts, other phases, reports; none of ``files``.
    """

    root: Path
    files: tuple[Path, ...]
    folders: tuple[Path, ...]
    loops: tuple[Path, ...]
    other_series: tuple[Path, ...] = ()

    def parts(self, path: Path) -> tuple[str, ...]:
        """Return the parts of a path below the root."""
        return path.relative_to(self.root).parts

    def notes(self, smaller: Sequence[Path] = ()) -> list[Note]:
        """Return notes on links that lead back, and on smaller series, these among them, if there are any."""
        links = [path.relative_to(self.root).as_posix() for path in self.loops]
        notes = [f"links to a folder that they are in: {quoted(links, MAX_SHOWN)}"] if links else []
        notes += self._of_smaller((*self.other_series, *smaller))
        return [Note("left out", text) for text in notes]

    def _of_smaller(self, paths: Sequence[Path]) -> list[str]:
        """Return a line on what is left out of patients of whom the largest series is taken."""
        if not paths:
            return []
        where = quoted(sorted({path.parent.relative_to(self.root).as_posix() for path in paths}), MAX_SHOWN)
        what = number_of(len(paths), "DICOM file")
        return [f"{what} of other series, or without a picture, in {where}: the largest series is taken"]


def walk(root: Path) -> Walk:
    """Return what is below a folder; folders that are symbolic links are entered.

    Hidden files and folders (``.git``), and what systems leave behind (`NO_DATA`, `NO_FILES`), are left out.

    Raises
    ------
    OSError
        When a folder cannot be listed, or holds something else than files and folders, see `regular`.
    UserError
        See `series_folders`.
    """
    files: list[Path] = []
    folders: list[Path] = []
    loops: list[Path] = []

    def enter(folder: Path, above: frozenset[tuple[int, int]]) -> None:
        here = above | {_identity(folder)}
        for entry in _visible(folder):
            path = Path(entry.path)
            if not entry.is_dir():
                files.append(path if entry.is_file() else regular(path))
            elif entry.is_symlink() and _identity(path) in here:
                loops.append(path)
            else:
                folders.append(path)
                enter(path, here)

    enter(root, frozenset())
    series, other_series = series_folders(files, root)
    slices = {path for paths in series.values() for path in paths}.union(other_series)
    files = [*(path for path in files if path not in slices), *series]
    folders = [path for path in folders if path not in series]
    return Walk(
        root, tuple(sorted(files)), tuple(sorted(folders)), tuple(sorted(loops)), tuple(sorted(other_series))
    )


def _visible(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            unseen = NO_DATA if entry.is_dir() else NO_FILES
            if not entry.name.startswith(".") and entry.name.lower() not in unseen:
                yield entry


def _identity(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_dev, stat.st_ino


def stamps(files: tuple[Path, ...], root: Path) -> list[tuple[str, int, int]]:
    """Return the path, size and time of each file; of a link to nothing, those of the link.

    Of a series they are those of its slices.

    Raises
    ------
    OSError
        When a file cannot be seen.
    """
    found = []
    slices = (sorted(path.iterdir()) if path.is_dir() else [path] for path in files)
    for path in chain.from_iterable(slices):
        stat = path.stat() if path.exists() else path.lstat()
        found.append((str(path.relative_to(root)), stat.st_size, stat.st_mtime_ns))
    return found
