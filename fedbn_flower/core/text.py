"""Text for people: what anybody may have written, many things in a line, commands that messages suggest."""

import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path


def visible(text: str) -> str:
    """Return a text in which characters that are not seen, such as a terminal's escapes, are spelt out.

    >>> visible("benign\\x1b[2J")
    'benign\\\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def listed(words: Sequence[str], most: int) -> str:
    """Return words with commas between them: the first ``most``, and how many more there are."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return f"{', '.join(words[:most])}{more}"


def joined(words: Sequence[str], last: str = "and") -> str:
    """Return words with commas between them, and another word before the last one."""
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def number_of(count: int, thing: str) -> str:
    """Return how many things there are, as ``1 row`` or ``2 rows``."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def quoted(words: Sequence[str], most: int) -> str:
    """Return words as `listed` does, in quotes."""
    return listed([repr(word) for word in words], most)


def command(arguments: Iterable[str]) -> str:
    """Return the command that runs this program with other arguments.

    It begins with ``python run_sim.py`` or ``fedbn-sim``, whichever was started.
    """
    script = sys.argv[0]
    program = ["python", script] if script.endswith(".py") else [Path(script).name]
    return shlex.join([*program, *arguments])
