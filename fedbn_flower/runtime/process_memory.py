"""Settings for processes that train, by the environment that they are started in."""

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

# Gradients come and go with every step: glibc is to keep their memory, not to fetch it anew each time.
MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**28)}


@contextmanager
def starting_with(variables: Mapping[str, str]) -> Iterator[None]:
    """Let processes that are started in the block have these in their environment."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def keeping_freed_memory() -> AbstractContextManager[None]:
    """Let processes that are started in the block keep the memory that they free."""
    return starting_with({name: value for name, value in MEMORY.items() if name not in os.environ})
