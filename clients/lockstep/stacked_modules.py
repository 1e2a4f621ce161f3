"""Many models of one architecture as a single module, their parameters stacked in a new first dimension."""

import copy
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Stacked(nn.Module):
    """A layer of many models. Row i of its parameters belongs to model i.

    Its input has the examples of the first `active` models, concatenated, the same number for each.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.active = self.count = count
        self.mask: Tensor | None = None
        """1 for each actual example, 0 for padding, (active, b); None without padding."""

    def serve(self, active: int, mask: Tensor | None) -> None:
        """Set `active` and `mask` for the next forward passes; `nn.Module` sets attributes slowly."""
        if self.active != active or self.mask is not mask:
            self.active, self.mask = active, mask

    def rows(self, name: str) -> Tensor:
        """Return the active rows of an entry; `nn.Module` finds attributes slowly."""
        own = self._parameters if name in self._parameters else self._buffers
        entry = own[name]
        assert entry is not None
        return entry if self.active == self.count else entry[: self.active]


class StackedLinear(Stacked):
    """`nn.Linear` of many models."""

    def __init__(self, layer: nn.Linear, count: int) -> None:
        super().__init__(count)
        self.weight = _parameter(layer.weight, count)
        self.bias = _parameter(layer.bias, count)
        self.factors: list[tuple[Tensor, Tensor]] | None = None
        """Of the weights' gradient, instead of the gradient itself, if a list; see `descend`."""

    def forward(self, x: Tensor) -> Tensor:
        # Weights come first in the product, so that their gradient has their layout: no strided copy.
        weight, x = self.rows("weight"), _by_model(x, self.active)
        if self.bias is None:
            return torch.bmm(weight, x.transpose(1, 2)).transpose(1, 2).flatten(0, 1)
        bias, factors = self.rows("bias").unsqueeze(2), self.factors
        if factors is None or not (weight.requires_grad and bias.requires_grad):
            return torch.baddbmm(bias, weight, x.transpose(1, 2)).transpose(1, 2).flatten(0, 1)
        y = torch.baddbmm(bias, weight.detach(), x.transpose(1, 2))
        inputs = x.detach()
        y.register_hook(lambda gradient: factors.append((gradient, inputs)))  # type: ignore[no-untyped-call]
        return y.transpose(1, 2).flatten(0, 1)

    @torch.no_grad()
    def descend(self, learning_rate: float) -> None:
        """Subtract ``learning_rate`` times the gradient from the weights, as the product of its factors.

        A product that is added costs as much as one that is written. The gradient would be written, read
        and subtracted as well.
        """
        weight = self.rows("weight")
        for gradient, inputs in self.factors or ():
            weight.baddbmm_(gradient, inputs, alpha=-learning_rate)
        self.factors = self.factors and []


class StackedConv2d(Stacked):
    """`nn.Conv2d` of many models: one convolution in groups."""

    def __init__(self, layer: nn.Conv2d, count: int) -> None:
        super().__init__(count)
        self.layer = [layer]  # for its settings; the list keeps it from being registered as a submodule
        self.register_parameter("weight", _parameter(layer.weight, count))
        self.register_parameter("bias", _parameter(layer.bias, count))

    def forward(self, x: Tensor) -> Tensor:
        settings = self.layer[0]
        bias = None if self.bias is None else self.rows("bias").flatten()
        y = functional.conv2d(
            _side_by_side(x, self.active),
            self.rows("weight").flatten(0, 1),
            bias,
            settings.stride,
            settings.padding,
            settings.dilation,
            settings.groups * self.active,
        )
        return _concatenated(y, self.active)


class StackedBatchNorm(Stacked):
    """BatchNorm of many models. Padding has no effect.

    A single value per channel has no variance. PyTorch raises; here that model's statistics become NaN, and
    the other models are not affected.
    """

    def __init__(self, layer: nn.BatchNorm1d | nn.BatchNorm2d, count: int) -> None:
        super().__init__(count)
        self.momentum = layer.momentum or 0.0
        self.eps = layer.eps
        for name, parameter in layer.named_parameters():
            self.register_parameter(name, _parameter(parameter, count))
        for name, buffer in layer.named_buffers():
            self.register_buffer(name, _zeros(buffer, count))

    def forward(self, x: Tensor) -> Tensor:
        mean, variance, weight, bias = (
            self.rows(name) for name in ("running_mean", "running_var", "weight", "bias")
        )
        values = x.numel() // (self.active * x.shape[1])
        if self.training:
            self.rows("num_batches_tracked").add_(1)
        if not self.training or (self.mask is None and values > 1):
            y = torch.batch_norm(
                _side_by_side(x, self.active),
                weight.flatten(),
                bias.flatten(),
                mean.flatten(),
                variance.flatten(),
                self.training,
                self.momentum,
                self.eps,
                torch.backends.cudnn.enabled,
            )
            return _concatenated(y, self.active)
        x = _by_model(x, self.active)
        dims = [1, *range(3, x.dim())]
        present = x.new_ones(x.shape[:2]) if self.mask is None else self.mask
        mask = present.view(*present.shape, *[1] * (x.dim() - 2))
        count = (present.sum(1) * x[0, 0, 0].numel()).unsqueeze(1)
        found = (x * mask).sum(dims) / count
        shape = (self.active, 1, -1, *[1] * (x.dim() - 3))
        centred = x - found.view(shape)
        spread = (centred.square() * mask).sum(dims) / count
        with torch.no_grad():
            mean.lerp_(found, self.momentum)
            variance.lerp_(spread * count / (count - 1), self.momentum)
        scale = weight * torch.rsqrt(spread + self.eps)
        return (centred * scale.view(shape) + bias.view(shape)).flatten(0, 1)


@lru_cache(maxsize=4)
def stacked(model: nn.Module, count: int) -> nn.Module:
    """Return ``count`` stacked models of this architecture, not initialised. The result is cached.

    Its state dict has the model's names, and shapes with ``count`` in front. Its input and output are the
    models' examples, concatenated. The model must be supported, see `reason_not_supported`, and what it
    trains must stay the same.
    """
    layers = {id(m): STACKED[type(m)](m, count) for m in model.modules() if type(m) in STACKED}
    return copy.deepcopy(model, layers)  # each layer replaced by its stacked one


def stacked_layers(model: nn.Module) -> list[Stacked]:
    """Return the stacked layers, each of which is to `Stacked.serve` before a forward pass."""
    return [module for module in model.modules() if isinstance(module, Stacked)]


STACKED: dict[type[nn.Module], Callable[[Any, int], nn.Module]] = {
    nn.Linear: StackedLinear,
    nn.Conv2d: StackedConv2d,
    nn.BatchNorm1d: StackedBatchNorm,
    nn.BatchNorm2d: StackedBatchNorm,
}
"""Layers with parameters or buffers -> their stacked version."""


def _zeros(entry: Tensor, count: int) -> Tensor:
    return torch.zeros((count, *entry.shape), dtype=entry.dtype, device=entry.device)


def _parameter(entry: Tensor | None, count: int) -> nn.Parameter | None:
    """Return a stacked parameter, trained if the layer's is."""
    return None if entry is None else nn.Parameter(_zeros(entry, count), entry.requires_grad)


def _by_model(x: Tensor, count: int) -> Tensor:
    """Reshape (count * b, ...) to (count, b, ...)."""
    return x.reshape(count, -1, *x.shape[1:])


def _side_by_side(x: Tensor, count: int) -> Tensor:
    """Reorder (count * b, channels, ...) to (b, count * channels, ...)."""
    return _by_model(x, count).transpose(0, 1).flatten(1, 2)


def _concatenated(x: Tensor, count: int) -> Tensor:
    """Invert `_side_by_side`."""
    return x.reshape(len(x), count, -1, *x.shape[2:]).transpose(0, 1).flatten(0, 1)
