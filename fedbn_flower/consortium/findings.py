"""What the doctor finds."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ..core.errors import UserError
from ..core.text import visible

SAID = "doctor.txt"
"""The file of a consortium's folder with what its operator's doctor said last."""


@dataclass(frozen=True)
class Finding:
    """What was looked at, what was found, and what to do where a run would fail of it."""

    what: str
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        told = f"{'wrong' if self.remedy else 'fine':5}  {self.what:17}  {self.found}"
        return visible(f"{told}; {self.remedy}" if self.remedy else told)


def looked_at(what: str, remedy: str, look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield what a look finds, or why it ended: a file cannot be read or is damaged, a model not made."""
    try:
        yield from look()
    except (UserError, OSError, MemoryError, RuntimeError) as error:  # the last two of NumPy and PyTorch
        yield Finding(what, str(error) or type(error).__name__, remedy)


def shown(findings: Iterable[Finding]) -> int:
    """Print each finding in a line; return 1 if a run would fail of one of them, otherwise 0."""
    failed = 0
    for one in findings:
        print(one, flush=True)
        failed |= bool(one.remedy)
    return failed
