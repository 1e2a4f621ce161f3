"""Random numbers of the server's side and of the clients', of whatever library an app takes them from."""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np


def seed_libraries(*entropy: int) -> None:
    """Seed `random`, NumPy, and PyTorch if it is imported."""
    first, second, third = (int(word) for word in np.random.SeedSequence(entropy).generate_state(3))
    random.seed(first)
    np.random.seed(second)
    if torch := _torch():
        torch.manual_seed(third)


@contextmanager
def own_random_numbers(*entropy: int) -> Iterator[None]:
    """Seed the libraries within; afterwards their random numbers go on as if nothing had been drawn.

    A client in this process that seeds a library would otherwise decide which clients the server samples.
    """
    torch = _torch()
    before: tuple[Any, Any] = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch and torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices) if torch else nullcontext():
        seed_libraries(*entropy)
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])


def _torch() -> Any:
    """PyTorch if an app has imported it: it takes seconds."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "random") else None
