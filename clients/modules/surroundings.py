"""Isolate local training from global settings of PyTorch and NumPy that a caller has changed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np

from .lazy_torch import torch


@contextmanager
def usual_surroundings() -> Iterator[None]:
    """Compute as in a new process, and restore all settings afterwards.

    Gradients are recorded, also within `torch.no_grad` and `torch.inference_mode`. New tensors are float32
    and on the CPU, whatever the default dtype and device, and no autocast is on. NumPy's floating-point
    errors are warnings. The only difference from a new process: a GPU does not use TF32 for float32, see
    `_without_tf32`. Debugging settings are kept: anomaly mode, deterministic algorithms, threads.
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
        stack.enter_context(_without_tf32())
        stack.enter_context(_restored())
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        yield


@contextmanager
def kept_surroundings() -> Iterator[None]:
    """Undo global settings that the import of a module changes in PyTorch. Does not import PyTorch itself."""
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


@contextmanager
def _without_tf32() -> Iterator[None]:
    """Keep GPUs from rounding the factors of float32 products to TF32, which has 10 bits after the point.

    By default cuDNN does so in convolutions and recurrent layers. Clients in lockstep would differ from the
    same clients one by one in the fourth digit, and a GPU from a CPU.
    """
    switches = _tf32_switches()
    before = [read() for read, _, _ in switches]
    for _, write, off in switches:
        write(off)
    try:
        yield
    finally:
        for (_, write, _), value in zip(switches, before, strict=True):
            write(value)


def _tf32_switches() -> list[tuple[Callable[[], Any], Callable[[Any], None], Any]]:
    """Return the getter and setter of each TF32 switch, with the value that switches it off.

    PyTorch has two generations of them, and refuses to read the first once the second contradicts it.
    """
    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    try:
        cudnn.allow_tf32, products.allow_tf32  # noqa: B018
    except RuntimeError:
        parts = [cudnn.conv, cudnn.rnn, products]  # type: ignore[attr-defined]
        name: str = "fp32_precision"
        return [(partial(getattr, part, name), partial(setattr, part, name), "ieee") for part in parts]
    of_cudnn = partial(getattr, cudnn, "allow_tf32"), partial(setattr, cudnn, "allow_tf32"), False
    return [of_cudnn, (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest")]
