"""What a caller has set for all of PyTorch or NumPy, and local training is not to see."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np

from .lazy_torch import torch


@contextmanager
def usual_surroundings() -> Iterator[None]:
    """Compute as in a new process, and leave everything as it was found.

    Gradients are recorded, also within `torch.no_grad` and `torch.inference_mode`. New tensors are float32
    and on the CPU, whatever the default dtype and device, and no autocast is on. NumPy's errors of floating
    point are warnings. What is for debugging stays: anomaly mode, deterministic algorithms, threads.
    """
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        if torch.get_default_device() != torch.device("cpu"):
            stack.enter_context(torch.device("cpu"))
        stack.enter_context(np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"))
        stack.enter_context(_restored())
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        yield


@contextmanager
def kept_surroundings() -> Iterator[None]:
    """Undo what a module sets for all of PyTorch when it is imported. PyTorch is not imported for it."""
    known = "torch" in sys.modules
    with _restored() if known else ExitStack():
        yield
    if not known and "torch" in sys.modules:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)


@contextmanager
def _restored() -> Iterator[None]:
    recorded, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    try:
        yield
    finally:
        torch.set_grad_enabled(recorded)
        torch.set_default_dtype(dtype)
