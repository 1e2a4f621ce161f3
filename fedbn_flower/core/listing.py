"""Name the first of many things in a line."""

from collections.abc import Sequence


def listed(words: Sequence[str], most: int) -> str:
    """Return words with commas between them: the first ``most``, and how many more there are."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return f"{', '.join(words[:most])}{more}"


def quoted(words: Sequence[str], most: int) -> str:
    """Return words as `listed` does, in quotes."""
    return listed([repr(word) for word in words], most)
