"""How much memory this machine has left, and whether data, and files that others wrote, fit into it."""

import gzip
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from zipfile import ZipFile, is_zipfile

from .errors import UserError

CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
    ),
)

COPIES = 2
"""Of a file's content, that are in memory at once: its bytes, and what is made of them."""
KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_fits(key: str, what: str, needed: int) -> None:
    """Refuse data that this machine's memory cannot hold, before they are read.

    Parameters
    ----------
    key : str
        The key of the run that asks for them.
    what : str
        What they are, with their number and the file's name.
    needed : int
        The least number of bytes that they take at once.

    Raises
    ------
    UserError
        When more bytes are needed than are free.
    """
    if needed > (free := available_memory()):
        raise too_large(key, what, needed, free)


def too_large(key: str, what: str, needed: int, free: int) -> UserError:
    """Return the error for data that need more bytes than are free, see `check_fits`."""
    needed_and_free = f"{needed / 2**30:,.1f} GiB of memory, of which {free / 2**30:,.1f} are free"
    return UserError(f"{key}: too large: {what} would take {needed_and_free}")


def available_memory() -> int:
    """Bytes that new processes can have: the machine's, or what is left of a container's limit."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with suppress(OSError, ValueError):
        found.append(_counted(Path("/proc/meminfo"))["MemAvailable:"] * 2**10)
    for limit, used, counts in CGROUPS:
        with suppress(OSError, ValueError):  # "max" where there is no limit
            cached = _counted(Path(counts)).get("inactive_file", 0)
            found.append(int(Path(limit).read_text()) - int(Path(used).read_text()) + cached)
    return max(0, min(found))


def _counted(path: Path) -> dict[str, int]:
    """The numbers of a file with a name and a number a line."""
    rows = (line.split() for line in path.read_text().splitlines())
    return {row[0]: int(row[1]) for row in rows}


class NotAFile(OSError):
    """What a name leads to is neither a file nor a folder: reading it might never end."""


def regular(path: Path) -> Path:
    """Return a path that leads to a file, a folder or nothing.

    Raises
    ------
    NotAFile
        When it leads to a pipe, a socket or a device.
    """
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except OSError:  # whoever opens it says why
        return path
    if kind in KINDS:
        raise NotAFile(f"{str(path)!r} is {KINDS[kind]}; expected a file")
    return path


@contextmanager
def opened(path: Path, key: str = "dataset") -> Iterator[io.BufferedReader]:
    """Open a file for its bytes, unpacked if its name ends in ``.gz``.

    Raises
    ------
    NotAFile
        See `regular`.
    UserError
        As soon as so many bytes were read that memory does not hold them.
    """
    with regular(path).open("rb") as raw:
        if path.suffix.lower() == ".gz":
            with _Unpacked(raw, Bound(path, key)) as packed:
                yield io.BufferedReader(packed)
        else:
            check_size(path, key)
            yield raw


def check_size(path: Path, key: str = "dataset") -> Path:
    """Return the path of a file that is read as a whole; of a zip file, what it unpacks to counts, too.

    Raises
    ------
    NotAFile
        See `regular`.
    UserError
        When memory does not hold it.
    """
    size = regular(path).stat().st_size
    if is_zipfile(path):
        with ZipFile(path) as packed:
            size += sum(file.file_size for file in packed.infolist())
    check_fits(key, repr(str(path)), COPIES * size)
    return path


class Bound:
    """How far a file may be unpacked: to the share of the memory that is free which `COPIES` leave."""

    def __init__(self, path: Path, key: str = "dataset") -> None:
        self.what, self.key, self.free = f"{str(path)!r}, unpacked this far,", key, available_memory()
        self.most = self.free // COPIES

    def check(self, size: int) -> None:
        """Raise a UserError if so many bytes were unpacked that memory does not hold them."""
        if size > self.most:
            raise too_large(self.key, self.what, COPIES * size, self.free)


class _Unpacked(gzip.GzipFile):
    """A packed file that ends with an error where its content goes beyond a bound."""

    def __init__(self, raw: io.BufferedReader, bound: Bound) -> None:
        super().__init__(fileobj=raw)
        self.bound = bound

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self.bound.most - self.tell()) + 1
        found = super().read(left if size is None or size < 0 else min(size, left))
        self.bound.check(self.tell())
        return found
