"""Name the first of many things in a line."""

from collections.abc import Sequence


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
