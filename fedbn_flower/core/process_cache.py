"""Caches that live as long as the process, cleared together.

A worker serves many clients and many messages of one run, so what follows from a run's configuration is made
once. A process that starts another run may find files changed since the last one: it clears all of them.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")

_clear: list[Callable[[], None]] = []


def process_cache(maxsize: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Cache a function's last ``maxsize`` results, by its arguments, until `clear_process_caches`."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        cached = lru_cache(maxsize)(function)
        _clear.append(cached.cache_clear)
        return cast(Callable[P, T], cached)

    return decorate


def clear_process_caches() -> None:
    """Forget every result that a `process_cache` holds."""
    for clear in _clear:
        clear()
