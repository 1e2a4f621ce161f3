"""Where a run's folder is: made, and had to oneself."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from ..config.run_config import RunConfig
from ..core.errors import UserError, not_allowed, os_errors_told
from ..core.files import remove_unfinished

LOCK = ".lock"
PATIENCE = 5.0
"""Seconds in which what a killed run has left behind lets go of its folder."""


def prepare_run_folder(path: Path, key: str = "run-dir") -> None:
    """Make the folder, which that key names.

    Raises
    ------
    UserError
        When it has something in it already, or cannot be made.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{key}: {str(path)!r} is not allowed; expected a new or empty folder")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_make(path, error, key) from error


def _cannot_make(path: Path, error: OSError, key: str = "run-dir") -> UserError:
    return UserError(f"{key}: cannot make {str(path)!r} ({error.strerror})")


@contextlib.contextmanager
def run_folder_locked(config: RunConfig, path: Path, patience: float = 0.0) -> Iterator[None]:
    """Have a run's folder to oneself: new or empty, or the one to resume in.

    ``patience`` is for how many seconds to wait for another process to let go of it.

    Raises
    ------
    UserError
        When it has something in it already, cannot be made, or is another process's.
    """
    if not config.resume:
        prepare_run_folder(path)
    key, least = ("resume", PATIENCE) if config.resume else ("run-dir", 0.0)
    with folder_locked(path, key, max(patience, least)):
        yield


@contextlib.contextmanager
def folder_locked(path: Path, key: str, patience: float = 0.0, beginning: str = "") -> Iterator[None]:
    """Have any folder of results to oneself, without what killed writers have left in it, or of files with
    this beginning.

    Raises
    ------
    UserError
        When it is another process's; it begins with the key.
    """
    lock = FileLock(path / LOCK, timeout=patience)
    with os_errors_told(key, f"write to {str(path)!r}"):
        try:
            lock.acquire()
        except Timeout as error:
            told = f"a folder that no running process writes to{_holder(path / LOCK)}"
            raise not_allowed(key, str(path), told) from error
    try:
        remove_unfinished(path, beginning)
        yield
    finally:
        lock.release()


def _holder(lock: Path) -> str:
    """Which process has the lock, where the system tells."""
    with contextlib.suppress(OSError, ValueError):
        inode = str(lock.stat().st_ino)
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()  # 1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE START END
            if fields[1] == "FLOCK" and fields[5].split(":")[-1] == inode and int(fields[4]) > 0:
                return f", as process {fields[4]} does"
    return ""


def default_run_folder(under: Path = Path()) -> Path:
    """Make a folder ``runs/TIME``, one that nobody else was given, in the current directory by default.

    Raises
    ------
    UserError
        When it cannot be made.
    """
    first = path = under / "runs" / time.strftime("%Y%m%d-%H%M%S")
    number = 1
    while True:
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            number += 1
            path = first.with_name(f"{first.name}-{number}")
        except OSError as error:
            raise _cannot_make(path, error) from error
