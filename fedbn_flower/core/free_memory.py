"""How much memory this machine has left, and whether data fit into it."""

import os
from contextlib import suppress
from pathlib import Path

from .errors import UserError

CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
    ),
)


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
        needed_and_free = f"{needed / 2**30:,.1f} GiB of memory, of which {free / 2**30:,.1f} are free"
        raise UserError(f"{key}: too large: {what} would take {needed_and_free}")


def available_memory() -> int:
    """Bytes that new processes can have: the machine's, or what is left of a container's limit."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with suppress(OSError, ValueError):
        found.append(_counted(Path("/proc/meminfo"))["MemAvailable:"] * 2**10)
    for limit, used, stat in CGROUPS:
        with suppress(OSError, ValueError):  # "max" where there is no limit
            cached = _counted(Path(stat)).get("inactive_file", 0)
            found.append(int(Path(limit).read_text()) - int(Path(used).read_text()) + cached)
    return max(0, min(found))


def _counted(path: Path) -> dict[str, int]:
    """The numbers of a file with a name and a number a line."""
    rows = (line.split() for line in path.read_text().splitlines())
    return {row[0]: int(row[1]) for row in rows}
