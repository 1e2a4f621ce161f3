"""What a class overrides of its base."""

from collections.abc import Iterable


def overridden(cls: type, base: type, names: Iterable[str]) -> list[str]:
    """Return those of the names that mean something else in a class than in its base."""
    return [name for name in names if getattr(cls, name) is not getattr(base, name)]
