"""Torch's global generators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .lazy_torch import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generators, also the GPU's if in use; restore their states afterwards."""
    generators = [torch.default_generator, *torch.cuda.default_generators]
    before = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(seed)
    try:
        yield
    finally:
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)
