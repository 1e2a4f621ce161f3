"""Session objects: the caller's own classes and functions, by names that a run configuration can hold.

A class or function defined in a notebook or a script has no ``FILE.py:NAME`` by which another process could
import it. It gets a unique name, ``NAME@NUMBER``, and is registered under it while a run lasts. The driver
sends its session objects to the workers when the run starts.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count

MARK = "@"

_numbers = count(1)  # no name is used twice: caches go by name
_objects: dict[str, object] = {}


def new_name(value: object) -> str:
    """Return a name that no other object of this process has had."""
    return f"{getattr(value, '__name__', type(value).__name__)}{MARK}{next(_numbers)}"


def is_session_name(name: str) -> bool:
    """Return whether `new_name` made this name, in this or another process."""
    return re.fullmatch(rf"[^:]*{MARK}\d+", name) is not None


@contextmanager
def with_session_objects(objects: Mapping[str, object]) -> Iterator[None]:
    """Register objects by name while the context lasts."""
    _objects.update(objects)
    try:
        yield
    finally:
        for name in objects:
            del _objects[name]


def session_objects() -> dict[str, object]:
    """Return the session objects by name."""
    return dict(_objects)


def replace_session_objects(objects: Mapping[str, object]) -> None:
    """Replace this worker's session objects with the driver's."""
    _objects.clear()
    _objects.update(objects)
