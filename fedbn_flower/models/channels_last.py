"""How pictures lie in memory on their way through a network: its own way, or channels last.

Convolutions on a CPU are oneDNN's, which is faster where the channels of a pixel lie side by side. Once the
inputs do, PyTorch keeps it so from layer to layer. Parameters stay as they are, and so does all that is made
of them. Not every network gains, and some cannot: a ``view`` of such pictures raises.
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
"""Modules that were measured to be as fast, or faster; InstanceNorm, for one, is not."""

EXAMPLES = 4
OUTPUT, GRADIENT = 1e-3, 0.1
"""Relative differences that are rounding: a ReLU that falls on the other side of 0 shows in the gradient."""


def lay_out(model: nn.Module, spec: InputSpec) -> None:
    """Have the model put its inputs channels last, if it is of a kind that gains and a trial step agrees.

    The result is the same in every process: it depends on the model and the inputs' shape alone. Torch's
    generators are as before, and so is the model but for a hook on its inputs.
    """
    if _gains(model, spec) and _agrees(model, spec):
        model.register_forward_pre_hook(channels_last)


def channels_last(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """A hook: the first input, shape (b, c, h, w), laid out with the channels of a pixel side by side."""
    return inputs[0].to(memory_format=torch.channels_last), *inputs[1:]


def _gains(model: nn.Module, spec: InputSpec) -> bool:
    """Whether it is a network of several convolutions, known layers only, in which pictures get smaller.

    Where they do not, what is left of the layout at the end costs more than the convolutions gain.
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
    """Whether copies of the model, their inputs in either layout, give the same outputs and gradients."""
    with seeded(0), _one_thread(), warnings.catch_warnings(action="ignore"):
        inputs = torch.randn(EXAMPLES, *spec.shape)
        try:
            expected = _step(copy.deepcopy(model), inputs)
            found = _step(copy.deepcopy(model), inputs.to(memory_format=torch.channels_last))
        except Exception:  # whatever it is: as the model was, it is the run's own affair
            return False
    trained, evaluated, gradient = (_difference(a, b) for a, b in zip(found, expected, strict=True))
    # What is made of an output may view it.
    return trained <= OUTPUT and evaluated <= OUTPUT and gradient <= GRADIENT and found[0].is_contiguous()


def _step(model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs in training and then in evaluation, and the gradient of a weighted sum of the former."""
    with seeded(0):
        trained: Tensor = model.train()(inputs)
        weights = torch.randn(trained.shape)
        torch.autograd.backward((trained * weights).sum())
        gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        with torch.no_grad():
            evaluated: Tensor = model.eval()(inputs)
    return trained.detach(), evaluated, torch.cat(gradients)


def _difference(found: Tensor, expected: Tensor) -> float:
    """Relative, by the L2 norm; infinite where the shapes differ."""
    if found.shape != expected.shape:
        return float("inf")
    return float((found - expected).norm() / expected.norm())


@contextmanager
def _one_thread() -> Iterator[None]:
    """So that rounding, and with it the trial's end, is the same in the driver and in its workers."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
