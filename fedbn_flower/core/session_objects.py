"""A caller's own objects under names that a run configuration can carry.

A class or a function that lives in a notebook or a script has no ``FILE.py:NAME`` by which another process
could find it. It gets the name ``NAME@NUMBER``, new in this process, and is at hand under it while a run
lasts. Workers are sent what is at hand when the run starts.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count

MARK = "@"

_numbers = count(1)  # never again the same name: what is cached by name belongs to one object
_at_hand: dict[str, object] = {}


def new_name(value: object) -> str:
    """A name that no other object of this process has had."""
    return f"{getattr(value, '__name__', type(value).__name__)}{MARK}{next(_numbers)}"


def is_own(name: str) -> bool:
    """Whether it is a name that `new_name` gave, in whatever process."""
    return re.fullmatch(rf"[^:]*{MARK}\d+", name) is not None


@contextmanager
def at_hand(objects: Mapping[str, object]) -> Iterator[None]:
    """Have objects found by name."""
    _at_hand.update(objects)
    try:
        yield
    finally:
        for name in objects:
            del _at_hand[name]


def own_objects() -> dict[str, object]:
    """What is at hand, by name."""
    return dict(_at_hand)


def take_over(objects: Mapping[str, object]) -> None:
    """Have in this process, a worker, what is at hand in the one that started the run, and nothing else."""
    _at_hand.clear()
    _at_hand.update(objects)
