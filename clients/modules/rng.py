"""Torch's global generators."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's global generators, seeded, the GPU's too if it is in use; afterwards as they were before."""
    generators = [torch.default_generator, *torch.cuda.default_generators]
    before = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(seed)
    try:
        yield
    finally:
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)
