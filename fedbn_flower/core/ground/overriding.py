"""What a class overrides of its base."""

from collections.abc import Iterable


def overridden(cls: type, base: type, names: Iterable[str]) -> list[str]:
    """Return those of the names that mean something else in a class than in its base."""
    return [name for name in names if _function(cls, name) is not _function(base, name)]


def _function(cls: type, name: str) -> object:
    found = getattr(cls, name)
    return getattr(found, "__func__", found)  # a class method is bound anew each time
