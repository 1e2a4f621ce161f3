"""Mixed precision: forward passes in half precision by torch.autocast, everything else in float32."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from .lazy_torch import nn, torch
from .rng import seeded

DTYPES: Mapping[str, str] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Names of PyTorch's dtypes."""


def is_half(dtype: torch.dtype) -> bool:
    """Return whether it is a dtype of half precision."""
    return dtype in (torch.bfloat16, torch.float16)


def compute_in(model: nn.Module, precision: str, device: str = "cpu") -> None:
    """Run all further forward passes of a model, and of its copies, in a precision of `DTYPES`.

    Autocast chooses the operations that run in half precision; the model's output is float32, and so are its
    parameters, buffers and gradients, the loss, and the terms of an objective. Each pass enters autocast by
    itself: an objective may change a parameter between two passes, as FedSAM does, and within one autocast
    the second pass would use the first one's cast of it.

    Parameters
    ----------
    model : nn.Module
        Changed in place; "fp32" leaves it as it is.
    precision : str
        A key of `DTYPES`.
    device : str
        The device on which the model runs: ``cpu`` or ``cuda``.
    """
    if is_half(dtype := getattr(torch, DTYPES[precision])):
        model.forward = partial(_autocast, device, dtype, model.forward)


# A partial is copied with the model, and then calls the copy; a closure would call the original.
def _autocast(device: str, dtype: torch.dtype, forward: Any, *args: Any, **kwargs: Any) -> object:
    torch.clear_autocast_cache()  # an enclosing autocast would keep it from pass to pass
    with torch.autocast(device, dtype=dtype):
        output = forward(*args, **kwargs)
    return in_float32(output) if isinstance(output, torch.Tensor) else output


def accept_float32(model: nn.Module, inputs: torch.Tensor) -> None:
    """Make a model with parameters of another dtype accept float32 inputs, and return float32 outputs.

    The loss and the terms of an objective are then computed in float32. A model that already accepts float32
    inputs, as it casts them itself, still gets them. If parameters have several dtypes nothing is changed.
    """
    dtypes = {p.dtype for p in model.parameters()}
    if len(dtypes) != 1 or dtypes == {torch.float32}:
        return
    training = model.training
    try:
        with torch.no_grad(), seeded(0):
            model.eval()(inputs)
        cast_to = None
    except Exception:  # any error: the cast inputs are tried later, and refused in a line
        cast_to = dtypes.pop()
    model.train(training)
    model.forward = partial(_cast, cast_to, model.forward)


def _cast(dtype: torch.dtype | None, forward: Any, inputs: Any, *args: Any, **kwargs: Any) -> object:
    if dtype and isinstance(inputs, torch.Tensor) and inputs.is_floating_point():
        inputs = inputs.to(dtype)
    output = forward(inputs, *args, **kwargs)
    return in_float32(output) if isinstance(output, torch.Tensor) else output


def in_float32(values: torch.Tensor) -> torch.Tensor:
    """Return values in half precision as float32, others as they are."""
    return values.float() if is_half(values.dtype) else values


def precision_of(model: nn.Module) -> torch.dtype:
    """Return the dtype of `compute_in`, by default float32."""
    forward = vars(model).get("forward")
    if isinstance(forward, partial) and forward.func is _autocast:
        dtype: torch.dtype = forward.args[1]
        return dtype
    return torch.float32
