"""Run a network's convolutions in the channels-last memory format where that is faster.

On a CPU, PyTorch's convolutions are oneDNN's, which is faster if the channels of a pixel are adjacent in
memory. If the inputs are channels last, PyTorch keeps the format from layer to layer. Parameters keep their
own format, and so does everything computed from them. Not every network gains, and some cannot run so: a
``view`` of such activations raises.
"""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fedbn_flower.clients.modules.rng import seeded

from ..core.input_spec import InputSpec

POOLINGS = frozenset({nn.AvgPool2d, nn.MaxPool2d})
LAYERS = POOLINGS | {
    nn.AdaptiveAvgPool2d, nn.BatchNorm1d, nn.BatchNorm2d, nn.Conv2d, nn.Dropout, nn.Dropout2d, nn.ELU,
    nn.Flatten, nn.GELU, nn.GroupNorm, nn.Hardswish, nn.Identity, nn.LeakyReLU, nn.Linear, nn.LogSoftmax,
    nn.ReLU, nn.ReLU6, nn.Sigmoid, nn.SiLU, nn.Softmax, nn.Tanh,
}  # fmt: skip
"""Layers measured to be at least as fast channels last; InstanceNorm, for example, is slower."""

EXAMPLES = 4
OUTPUT, GRADIENT = 1e-3, 0.1
"""Relative differences still taken for rounding; a ReLU input that changes sign shows in the gradient."""


def lay_out(model: nn.Module, spec: InputSpec) -> None:
    """Convert the model's inputs to channels last, if it gains from that and a trial step agrees.

    The decision depends only on the model and the inputs' shape, so it is the same in every process. The
    model gets a hook on its inputs and is otherwise unchanged; so are torch's generators.
    """
    if _gains(model, spec) and _agrees(model, spec):
        model.register_forward_pre_hook(channels_last)


def channels_last(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Convert the first input, shape (b, c, h, w), to channels last; a forward pre-hook."""
    try:
        return inputs[0].to(memory_format=torch.channels_last), *inputs[1:]
    except RuntimeError:  # vmap, with which DP-SGD takes examples one by one, has no memory formats
        return None


def _gains(model: nn.Module, spec: InputSpec) -> bool:
    """Return whether the network has several convolutions, only known layers, and subsamples.

    Without subsampling, converting the last activations back costs more than the convolutions gain.
    """
    layers = [module for module in model.modules() if not list(module.children())]
    convolutions = [layer for layer in layers if type(layer) is nn.Conv2d]
    return (
        torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and len(spec.shape) == 3
        and spec.predicts != "characters"
        and LAYERS.issuperset(map(type, layers))
        and len(convolutions) > 1
        and all(c.padding_mode == "zeros" and c.dilation == (1, 1) for c in convolutions)
        and all(c.weight.dtype == torch.float32 for c in convolutions)
        and (not POOLINGS.isdisjoint(map(type, layers)) or any(max(c.stride) > 1 for c in convolutions))
    )


def _agrees(model: nn.Module, spec: InputSpec) -> bool:
    """Return whether copies of the model give equal outputs and gradients in both memory formats."""
    with seeded(0), _one_thread(), warnings.catch_warnings(action="ignore"):
        inputs = torch.randn(EXAMPLES, *spec.shape)
        try:
            expected = _step(copy.deepcopy(model), inputs)
            found = _step(copy.deepcopy(model), inputs.to(memory_format=torch.channels_last))
        except Exception:  # if the unchanged model raises too, the run reports it
            return False
    trained, evaluated, gradient = (_difference(a, b) for a, b in zip(found, expected, strict=True))
    # Code that uses the output may call view() on it.
    return trained <= OUTPUT and evaluated <= OUTPUT and gradient <= GRADIENT and found[0].is_contiguous()


def _step(model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return training outputs, evaluation outputs, and the gradient of a weighted sum of the former."""
    with seeded(0):
        trained: Tensor = model.train()(inputs)
        weights = torch.randn(trained.shape)
        torch.autograd.backward((trained * weights).sum())
        gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        with torch.no_grad():
            evaluated: Tensor = model.eval()(inputs)
    return trained.detach(), evaluated, torch.cat(gradients)


def _difference(found: Tensor, expected: Tensor) -> float:
    """Return the relative difference in the L2 norm; infinite if the shapes differ."""
    if found.shape != expected.shape:
        return float("inf")
    return float((found - expected).norm() / expected.norm())


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread, so that the driver and its workers round alike and decide alike."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
