"""Create and lock the folders of results."""

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from ..config.run_config import RunConfig
from ..core.errors import UserError, not_allowed, os_errors_as_user_errors
from ..core.files import remove_unfinished

LOCK = ".lock"
LOCKS, LOCKED = Path("/proc/locks"), r"^\d+: FLOCK .* (-?\d+) \S+:(\d+) \d+ \w+$"
"""Where Linux lists them, and a line of it: ``1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE START END``."""
PATIENCE = 5.0
"""Seconds that the processes of a killed run may take to release its folder."""


def prepare_run_folder(path: Path, key: str = "run-dir") -> None:
    """Create the folder; errors name the key.

    Raises
    ------
    UserError
        When the folder is not empty or cannot be created.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise not_allowed(key, str(path), "a new or empty folder")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_create(path, error, key) from error


def _cannot_create(path: Path, error: OSError, key: str = "run-dir") -> UserError:
    return UserError(f"{key}: cannot create {str(path)!r} ({error.strerror})")


@contextlib.contextmanager
def run_folder_locked(config: RunConfig, path: Path, patience: float = 0.0) -> Iterator[None]:
    """Lock a run's folder: a new or empty one, or the one to resume in.

    ``patience`` is the number of seconds to wait for another process to release it.

    Raises
    ------
    UserError
        When the folder is not empty, cannot be created, or is locked by another process.
    """
    if not config.resume:
        prepare_run_folder(path)
    key, least = ("resume", PATIENCE) if config.resume else ("run-dir", 0.0)
    with folder_locked(path, key, max(patience, least)):
        yield


@contextlib.contextmanager
def folder_locked(path: Path, key: str, patience: float = 0.0, beginning: str = "") -> Iterator[None]:
    """Lock any folder of results, and remove the unfinished files that killed writers have left in it.

    ``beginning`` limits the removal to files whose names start with it.

    Raises
    ------
    UserError
        When another process holds the lock; the message begins with the key.
    """
    lock = FileLock(path / LOCK, timeout=patience)
    with os_errors_as_user_errors(key, f"write to {str(path)!r}"):
        try:
            lock.acquire()
        except Timeout as error:
            expected = f"a folder that no running process writes to{_holder(path / LOCK)}"
            raise not_allowed(key, str(path), expected) from error
    try:
        remove_unfinished(path, beginning)
        yield
    finally:
        lock.release()


def _holder(lock: Path) -> str:
    """Return which process holds the lock, in words; empty where the system does not say."""
    with contextlib.suppress(OSError):
        process = lock_holders().get(lock.stat().st_ino, 0)
        return f", as process {process} does" if process > 0 else ""
    return ""


def lock_holders() -> dict[int, int]:
    """Return the process that holds each lock on this machine, by the file's inode; empty if it is not told.

    A process that is not seen from here, as in another container, is 0.
    """
    text = LOCKS.read_text() if LOCKS.exists() else ""
    return {int(inode): int(process) for process, inode in re.findall(LOCKED, text, re.MULTILINE)}


def default_run_folder(under: Path = Path()) -> Path:
    """Create a new folder ``runs/TIME``, by default in the current directory.

    Raises
    ------
    UserError
        When it cannot be created.
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
            raise _cannot_create(path, error) from error
