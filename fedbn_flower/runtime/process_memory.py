"""Memory settings for processes that train."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

# Gradients come and go with every step: glibc is to keep their memory, not to fetch it anew each time.
MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**28)}


@contextmanager
def keeping_freed_memory() -> Iterator[None]:
    """Let processes that are started in the block keep the memory that they free."""
    new = {name: value for name, value in MEMORY.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            del os.environ[name]
