"""Where a node's worker is found: a folder that nobody but the node's user may enter."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ..core.files import ONLY_OWNER, write_atomically
from .node import NoWorker

ONLY_USER = 0o700
FOR_OTHERS = 0o077
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
SOCKET = "socket"
RUNS = 2
"""How many runs may have a worker of one node each: so they may take turns."""
END = 10.0
"""Seconds that a process that was killed has to be gone."""


@dataclass(frozen=True)
class Record:
    """What a door finds of a worker that an earlier one started.

    Parameters
    ----------
    process : int
        Its process, the first of its group.
    identity : str
        What it was started for, see `workers.identity_of`.
    secret : str
        That both sides of a connection prove to know, in hexadecimal digits.
    """

    process: int
    identity: str
    secret: str


@dataclass(frozen=True)
class Place:
    """The folder of one node's worker.

    Parameters
    ----------
    folder : Path
        Made by `reserved`.
    """

    folder: Path

    @contextlib.contextmanager
    def address(self) -> Iterator[str]:
        """Yield the path of the worker's socket, which has 107 characters at most: a short one if it can be.

        Raises
        ------
        OSError
            When there is no folder.
        """
        descriptor = os.open(self.folder, FOLDER)
        try:
            short = Path("/proc/self/fd") / str(descriptor)
            yield str((short if short.exists() else self.folder) / SOCKET)
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def reserved(self) -> Iterator[bool]:
        """Reserve the worker for one message; yield whether it was free. The system ends a dead one's.

        Raises
        ------
        NoWorker
            When the folder cannot be made, or is not this user's alone.
        """
        descriptor = self._opened()
        try:
            check_private(os.fstat(descriptor), self.folder)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                free = os.path.samestat(os.fstat(descriptor), os.lstat(self.folder))
            except (BlockingIOError, FileNotFoundError):
                free = False
            yield free
        finally:
            os.close(descriptor)

    def record(self) -> Record | None:
        """Return the record of the worker, whether it lives or not; None without one that can be read."""
        try:
            descriptor = os.open(self._record, os.O_RDONLY | os.O_NOFOLLOW)
            with os.fdopen(descriptor) as file:
                check_private(os.fstat(descriptor), self._record)
                return Record(**json.load(file))
        except (OSError, TypeError, ValueError):
            return None

    def write(self, record: Record) -> None:
        """Write the record of a worker that was started."""
        write_atomically(self._record, json.dumps(asdict(record)), ONLY_OWNER)

    def live(self) -> int:
        """Declare that this process is the worker, until it ends; return the descriptor that holds the lock.

        Raises
        ------
        BlockingIOError, PermissionError
            When another one is.
        NoWorker
            When there can be no file in the folder.
        """
        try:
            descriptor = os.open(self._life, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, ONLY_OWNER)
        except OSError as error:
            raise NoWorker(f"no file for a worker ({error})") from error
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def use(self) -> None:
        """Declare that a message came to the worker."""
        now = time.time_ns()  # the system's own stamps may be of the last tick, which two messages share
        os.utime(self.folder, ns=(now, now))

    def last_used(self) -> int:
        """Return when one did, in nanoseconds; 0 if the folder is gone."""
        with contextlib.suppress(OSError):
            return self.folder.stat().st_mtime_ns
        return 0

    def hold_the_gpu(self) -> None:
        """Declare that the worker has memory of a GPU, which another run's is not to lack."""
        self._alone.touch(ONLY_OWNER)

    def holds_the_gpu(self) -> bool:
        """Whether the worker declared so."""
        return self._alone.exists()

    def lives(self) -> bool:
        """Whether a worker does. Its lock is the process's, not that of processes which it started.

        Raises
        ------
        NoWorker
            As `live`.
        """
        try:
            os.close(self.live())
        except (BlockingIOError, PermissionError):  # which of them depends on the system
            return True
        return False

    def kill(self) -> None:
        """End a worker that lives, and what it has started; wait until it is gone.

        Raises
        ------
        NoWorker
            When it cannot be ended.
        """
        record, deadline = self.record(), time.monotonic() + END
        if record and self.lives():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(record.process, signal.SIGKILL)
        while self.lives():
            if time.monotonic() > deadline:
                raise NoWorker("the last worker does not end")
            time.sleep(0.01)
        self.clear()

    def clear(self) -> None:
        """Remove what a worker that has ended leaves, but for the folder."""
        for path in (self.folder / SOCKET, self._record, self._life, self._alone):
            path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _record(self) -> Path:
        return self.folder / "worker.json"

    @property
    def _life(self) -> Path:
        return self.folder / "lives"

    @property
    def _alone(self) -> Path:
        return self.folder / "gpu"

    def _opened(self) -> int:
        try:
            make_private(self.folder.parent)
            make_private(self.folder)
            return os.open(self.folder, FOLDER)
        except NoWorker:
            raise
        except OSError as error:
            raise NoWorker(f"no folder for a worker ({error})") from error


def make_private(folder: Path) -> None:
    """Make a folder that only this user may enter, or check one that is there.

    Raises
    ------
    NoWorker
        When it is a link, another user's, or open to others.
    OSError
        When it cannot be made.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, ONLY_USER)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise NoWorker(f"{str(folder)!r} is not a folder")
    check_private(found, folder)


def check_private(found: os.stat_result, path: Path) -> None:
    """Refuse a file or a folder that is another user's, or that others may use.

    Raises
    ------
    NoWorker
        Names it.
    """
    if found.st_uid != os.geteuid():
        raise NoWorker(f"{str(path)!r} belongs to user {found.st_uid}")
    if found.st_mode & FOR_OTHERS:
        raise NoWorker(f"others than its owner may use {str(path)!r}: mode {found.st_mode & 0o777:o}")


def places() -> Path:
    """Return the folder of all workers of this user, which ends with a session or with the machine."""
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    above = session if os.path.isdir(session) else tempfile.gettempdir()
    return Path(above) / f"fedbn-{os.geteuid()}"


def remove_left_places(folder: Path) -> None:
    """Remove what workers have left that were killed, of all nodes."""
    for place in map(Place, folder.iterdir()):
        with contextlib.suppress(OSError), place.reserved() as free:
            if free and not place.lives():
                place.remove()


def make_room(folder: Path, node: str) -> None:
    """End workers of a node's other runs that are not at work, but for the `RUNS` used last, this one's among
    them, and those that hold a GPU.
    """
    used = sorted(map(Place, folder.glob(f"{node}-*")), key=Place.last_used)
    for number, place in enumerate(used, RUNS - len(used)):
        if number < 0 or place.holds_the_gpu():
            with contextlib.suppress(OSError), place.reserved() as free:
                if free:
                    place.kill()
                    place.remove()
