"""Torch's global generators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .lazy_torch import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generators, also the GPU's if in use; restore their states afterwards."""
    with replayed():
        for generator in generators():
            generator.manual_seed(seed)
        yield


@contextmanager
def replayed() -> Iterator[None]:
    """Restore the states of torch's global generators afterwards, so that later code repeats these draws."""
    known = generators()
    before = [generator.get_state() for generator in known]
    try:
        yield
    finally:
        for generator, state in zip(known, before, strict=True):
            generator.set_state(state)


def generators() -> list[torch.Generator]:
    """Return torch's global generators, those of GPUs too."""
    return [torch.default_generator, *torch.cuda.default_generators]
