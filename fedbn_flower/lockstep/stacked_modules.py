"""Many models of one architecture as a single module, their parameters stacked in a new first dimension."""

import copy
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

Factors = list[tuple[Tensor, Tensor]]
WIDE = 64  # outputs of a layer from which on its products have an example's outputs as rows


class Stacked(nn.Module):
    """A layer of many models. Row i of its parameters belongs to model i.

    Its input has the examples of the first `active` models, the same number for each, by turns: first the
    first example of each model.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.active = self.count = count
        self.mask: Tensor | None = None
        """1 for each actual example, 0 for padding, (b, active); None without padding."""

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
        self.factors: Factors | None = None
        """Of the weights' gradient, instead of the gradient itself, if a list; see `descend`."""

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.rows("bias")
        y: Tensor = _Affine.apply(x, self.rows("weight"), bias, self.factors)
        return y

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


class _Affine(torch.autograd.Function):
    """``x W^T + b`` of many models: x (examples, in) by turns, W (count, out, in), b (count, out) or None.

    The gradient of W has W's layout, or is left to the caller as its two ``factors``.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, factors: Factors | None) -> Tensor:
        x = _by_model(x, len(weight))
        ctx.save_for_backward(x, weight)
        ctx.factors = factors
        # A product whose rows are short, or no multiple of 16, takes up to twice as long: batches may be.
        if weight.shape[1] < WIDE:
            x = x.transpose(1, 2)
            y = torch.bmm(weight, x) if bias is None else torch.baddbmm(bias.unsqueeze(2), weight, x)
            y = y.transpose(1, 2)
        else:
            weight = weight.transpose(1, 2)
            y = torch.bmm(x, weight) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, weight)
        return y.transpose(0, 1).flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        gradient = _by_model(gradients[0], len(weight))
        of_x, of_weight, of_bias, _ = ctx.needs_input_grad
        found: list[Tensor | None] = [None] * 4
        if of_x:
            found[0] = torch.bmm(gradient, weight).transpose(0, 1).flatten(0, 1)
        if of_weight and ctx.factors is not None:
            ctx.factors.append((gradient.transpose(1, 2), x))
        elif of_weight:
            found[1] = torch.bmm(gradient.transpose(1, 2), x)
        if of_bias:
            found[2] = gradient.sum(1)
        return tuple(found)


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
            _by_example(x, self.active).flatten(1, 2),
            self.rows("weight").flatten(0, 1),
            bias,
            settings.stride,
            settings.padding,
            settings.dilation,
            settings.groups * self.active,
        )
        return y.reshape(len(x), -1, *y.shape[2:])


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
        several = x.numel() > self.active * x.shape[1]
        if self.training:
            self.rows("num_batches_tracked").add_(1)
        if not self.training or (self.mask is None and several):
            y = torch.batch_norm(
                _by_example(x, self.active).flatten(1, 2),
                weight.flatten(),
                bias.flatten(),
                mean.flatten(),
                variance.flatten(),
                self.training,
                self.momentum,
                self.eps,
                torch.backends.cudnn.enabled,
            )
            return y.reshape(x.shape)
        shape = (self.active, -1, *[1] * (x.dim() - 2))
        values = _by_example(x, self.active)
        dims = [0, *range(3, values.dim())]
        present = x.new_ones(values.shape[:2]) if self.mask is None else self.mask
        mask = present.view(*present.shape, *[1] * (values.dim() - 2))
        count = (present.sum(0) * values[0, 0, 0].numel()).unsqueeze(1)
        found = (values * mask).sum(dims) / count
        centred = values - found.view(shape)
        spread = (centred.square() * mask).sum(dims) / count
        with torch.no_grad():
            mean.lerp_(found, self.momentum)
            variance.lerp_(spread * count / (count - 1), self.momentum)
        scale = weight * torch.rsqrt(spread + self.eps)
        return (centred * scale.view(shape) + bias.view(shape)).view(x.shape)


class Vmapped(Stacked):
    """Many models of any architecture: `torch.func.vmap` over the entries of a stacked model.

    Models with equally many examples in a batch run together, so there is no padding.

    Parameters
    ----------
    model : nn.Module
        A model without stacked layers whose entries are stacked, see `stacked`.
    count : int
        Of how many models.
    """

    def __init__(self, model: nn.Module, count: int) -> None:
        super().__init__(count)
        self.run = vmap(partial(functional_call, model), in_dims=(0, 1), out_dims=1)
        self.entries = dict(model.state_dict(keep_vars=True))
        self.buffer_names = self.entries.keys() - dict(model.named_parameters())

    def forward(self, x: Tensor) -> Tensor:
        x = _by_example(x, self.active)
        if self.mask is None:
            y: Tensor = self.run({name: entry[: self.active] for name, entry in self.entries.items()}, x)
            return y.flatten(0, 1)
        outputs: dict[int, Tensor] = {}
        sizes = self.mask.sum(0).int().tolist()
        for size in set(sizes):
            models = [i for i, own in enumerate(sizes) if own == size]
            taken = {name: entry[models] for name, entry in self.entries.items()}
            y = self.run(taken, x[:size, models])
            outputs |= zip(models, y.unbind(1), strict=True)
            for name in self.buffer_names:
                self.entries[name][models] = taken[name]
        return pad_sequence([outputs[i] for i in range(len(sizes))]).flatten(0, 1)


@lru_cache(maxsize=4)
def stacked(model: nn.Module, count: int) -> nn.Module:
    """Return ``count`` stacked models of this architecture, not initialised. The result is cached.

    Its state dict has the model's names, and shapes with ``count`` in front. Where its layers are `Stacked`,
    its input and output have the models' examples by turns; a model with other layers runs as `Vmapped`. The
    model must be supported, see `reason_not_supported`, and what it trains must stay the same.
    """
    parts: dict[int, nn.Module | Tensor | None]
    if takes_stacked_layers(model):
        parts = {id(m): STACKED[type(m)](m, count) for m in model.modules() if type(m) in STACKED}
    else:
        parts = {
            id(e): _parameter(e, count) if isinstance(e, nn.Parameter) else _zeros(e, count)
            for e in model.state_dict(keep_vars=True).values()
        }
    return copy.deepcopy(model, parts)  # each replaced by its stacked one


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


EXAMPLE_WISE = frozenset(
    {
        nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d,
        nn.AvgPool1d, nn.AvgPool2d, nn.CELU, nn.ELU, nn.Flatten, nn.GELU, nn.Hardshrink, nn.Hardsigmoid,
        nn.Hardswish, nn.Hardtanh, nn.Identity, nn.LeakyReLU, nn.LogSigmoid, nn.LogSoftmax, nn.MaxPool1d,
        nn.MaxPool2d, nn.Mish, nn.ReLU, nn.ReLU6, nn.SELU, nn.Sequential, nn.SiLU, nn.Sigmoid, nn.Softmax,
        nn.Softplus, nn.Softshrink, nn.Softsign, nn.Tanh, nn.Tanhshrink, nn.Threshold, nn.ZeroPad2d,
    }
)  # fmt: skip
"""Modules without parameters and buffers that process each example separately, subject to `CONDITIONS`."""

CONDITIONS: dict[type[nn.Module], Callable[[Any], bool]] = {
    nn.BatchNorm1d: lambda m: m.affine and m.track_running_stats and m.momentum is not None,
    nn.BatchNorm2d: lambda m: m.affine and m.track_running_stats and m.momentum is not None,
    nn.Conv2d: lambda m: m.padding_mode == "zeros",
    nn.Flatten: lambda m: m.start_dim >= 1,
    nn.LogSoftmax: lambda m: m.dim in {1, -1},
    nn.Softmax: lambda m: m.dim in {1, -1},
}
"""Modules that are supported only if the condition holds."""


def is_stackable(module: nn.Module) -> bool:
    """Return whether a module, without its children, has a stacked version or needs none."""
    kind = type(module)
    entries = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    return (
        (kind in STACKED and not list(module.children()))
        or (not entries and (kind in EXAMPLE_WISE or vars(kind).get("lockstep_safe") is True))
    ) and (kind not in CONDITIONS or CONDITIONS[kind](module))


def takes_stacked_layers(model: nn.Module) -> bool:
    """Return whether every module is stackable, so that a stacked model is made of stacked layers."""
    return all(map(is_stackable, model.modules()))


def _zeros(entry: Tensor, count: int) -> Tensor:
    return torch.zeros((count, *entry.shape), dtype=entry.dtype, device=entry.device)


def _parameter(entry: Tensor | None, count: int) -> nn.Parameter | None:
    """Return a stacked parameter, trained if the layer's is."""
    return None if entry is None else nn.Parameter(_zeros(entry, count), entry.requires_grad)


def _by_model(x: Tensor, count: int) -> Tensor:
    """Reshape (b * count, ...) to (count, b, ...)."""
    return _by_example(x, count).transpose(0, 1)


def _by_example(x: Tensor, count: int) -> Tensor:
    """Reshape (b * count, ...) to (b, count, ...)."""
    return x.reshape(-1, count, *x.shape[1:])
