"""What stands in the place of a model's BatchNorm layers, and how it replaces them in any model.

GroupNorm: Wu and He 2018 (arXiv 1803.08494), and its two extremes. Each example is normalised by itself: a
group of its channels, over all positions, by their mean and variance. Nothing depends on other examples, so
there are no statistics to estimate, to send or to keep.
FedWon: Zhuang and Lyu 2024, "Triumphing Multi-domain FL Without Normalization" (arXiv 2306.05879).
Hybrid BatchNorm: Chen et al. 2025 (arXiv 2505.21877).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from fedbn_flower.clients.modules.batch_norm import BatchNorm, batch_norm_modules, pools
from fedbn_flower.clients.modules.head import head_of
from fedbn_flower.clients.modules.lazy_torch import nn, torch

TIMM = "timm.layers.norm_act"
"""Its BatchNorm layers have dropout and an activation in them, as children ``drop`` and ``act``."""


class Norm(ABC):
    """Base of what stands in the place of BatchNorm: implement `instead`.

    Parameters
    ----------
    argument : str
        What follows the name: ``8`` in ``group:8``.

    Raises
    ------
    ValueError
        For an argument that is not allowed; the message says what is.
    """

    helps: ClassVar[tuple[str, ...]] = ()
    """What it is for: names of `core.methods.PURPOSES`, the main one first. Not inherited."""
    paper: ClassVar[str] = ""

    def __init__(self, argument: str = "") -> None:
        if argument:
            raise ValueError("nothing after its name")

    @abstractmethod
    def instead(self, layer: BatchNorm) -> nn.Module:
        """Return what replaces a BatchNorm layer: a new module for its channels, or the layer itself.

        What the new module has under the layer's names and of its shapes, ``weight`` and ``bias``, gets the
        layer's values afterwards.

        Raises
        ------
        ValueError
            For a layer that it cannot replace; the message says which it can.
        """

    def with_others(self, model: nn.Module) -> nn.Module:
        """Return a model, whose BatchNorm layers are replaced, with other layers changed; here as it is.

        Raises
        ------
        ValueError
            When it cannot; the message says what is expected.
        """
        return model

    def replace(self, model: nn.Module) -> nn.Module:
        """Return a model with its BatchNorm layers replaced; the same object but for a BatchNorm itself.

        Layers are found by type. One that is used under several names still is, and what follows in a layer
        of timm, an activation, still does.

        Raises
        ------
        ValueError
            As `instead` and `with_others`; for a layer with a hook, or with a forward of its own.
        """
        made: dict[nn.Module, nn.Module] = {}
        for name, layer in list(batch_norm_modules(model)):
            if layer not in made:
                made[layer] = self._made(name, layer)
            if not name:
                model = made[layer]
            elif made[layer] is not layer:
                parent, _, last = name.rpartition(".")
                model.get_submodule(parent).register_module(last, made[layer])
        return self.with_others(model)

    def _made(self, name: str, layer: BatchNorm) -> nn.Module:
        try:
            new = self.instead(layer)
        except ValueError as error:
            raise ValueError(f"{error} (layer {name!r})") from error
        if new is layer:
            return layer
        if of_its_own := _own_ways(layer):
            raise ValueError(f"'keep' with this model, of which the layer {name!r} {of_its_own}")
        _keep_entries(layer, new)
        if layer._modules:  # of timm
            for child in ("drop", "act"):
                new.register_module(child, layer.get_submodule(child))
            new.register_forward_hook(_and_what_follows)
        return new.train(layer.training)


def _own_ways(layer: nn.Module) -> str:
    """Return what a layer does that would be lost, in words; empty for torch's and timm's own."""
    if any(hooks for name, hooks in vars(layer).items() if "hook" in name):
        return "has a hook"
    torchs = nn.modules.batchnorm._BatchNorm, nn.SyncBatchNorm, nn.modules.instancenorm._InstanceNorm
    plain: set[object] = {kind.forward for kind in torchs}
    of_timm = type(layer).__module__ == TIMM and set(layer._modules) == {"drop", "act"}
    if type(layer).forward in plain and not layer._modules and "forward" not in vars(layer):
        return ""
    return "" if of_timm else f"is a {type(layer).__name__}, whose forward is its own"


def _keep_entries(layer: nn.Module, new: nn.Module) -> None:
    """Give a new layer those entries of the old one that it has too, and whether they train."""
    entries = {**dict(new.named_parameters(recurse=False)), **dict(new.named_buffers(recurse=False))}
    before = {**dict(layer.named_parameters(recurse=False)), **dict(layer.named_buffers(recurse=False))}
    with torch.no_grad():
        for name, entry in before.items():
            if name in entries and entries[name].shape == entry.shape:
                entries[name].copy_(entry)
                entries[name].requires_grad_(entry.requires_grad)
    new.to(next(layer.parameters(recurse=False), torch.empty(0)))


def _and_what_follows(layer: nn.Module, inputs: object, output: torch.Tensor) -> torch.Tensor:
    """Apply what a layer of timm has behind its normalisation; a forward hook."""
    followed: torch.Tensor = layer.get_submodule("act")(layer.get_submodule("drop")(output))
    return followed


class Keep(Norm):
    """The model as it is, with the BatchNorm layers that it has."""

    helps = ("baseline",)

    def instead(self, layer: BatchNorm) -> nn.Module:
        return layer


class Group(Norm):
    """GroupNorm with ``group:G`` groups of channels: each example by itself (Hsieh et al. 2020)."""

    helps = ("label-skew",)
    paper = "hsieh2020noniid"

    def __init__(self, argument: str = "") -> None:
        if not (argument.isascii() and argument.isdigit() and 0 < int(argument) < 2**31):
            raise ValueError("group:G with G groups of channels, a whole number >= 1")
        self.groups = int(argument)

    def instead(self, layer: BatchNorm) -> nn.Module:
        if layer.num_features % self.groups:
            channels = layer.num_features
            divisors = [str(g) for g in range(1, channels + 1) if channels % g == 0]
            raise ValueError(
                f"a number of groups that divides the channels of every layer: of {channels} channels it is "
                f"one of {', '.join(divisors)}"
            )
        return nn.GroupNorm(self.groups, layer.num_features, layer.eps, layer.affine)


class Layer(Norm):
    """LayerNorm over all channels and positions of an example, with a weight and a bias for each channel."""

    helps = ("label-skew",)
    paper = "ba2016layer"

    def instead(self, layer: BatchNorm) -> nn.Module:
        return nn.GroupNorm(1, layer.num_features, layer.eps, layer.affine)


class Instance(Norm):
    """InstanceNorm: each channel of an example over its positions."""

    helps = ("feature-shift",)
    paper = "ulyanov2016instance"

    def instead(self, layer: BatchNorm) -> nn.Module:
        return nn.GroupNorm(layer.num_features, layer.num_features, layer.eps, layer.affine)


class Nothing(Norm):
    """No normalisation: what is left of a layer is its weight and bias for each channel."""

    helps = ("baseline",)

    def instead(self, layer: BatchNorm) -> nn.Module:
        from .layers import Affine  # imports PyTorch

        return Affine(layer.num_features) if layer.affine else nn.Identity()


class ScaledWS(Nothing):
    """No normalisation, but standardised weights: ``gamma (W - mu) / (sigma sqrt(N))`` (FedWon).

    mu and sigma are the mean and deviation of the N weights of an output (equation 3), and gamma is the
    constant of ReLU, ``sqrt(2 / (1 - 1/pi))`` (Brock et al. 2021, arXiv 2101.08692). Convolutions and linear
    layers are reparameterised, all but the head: their entries are W, by the names that they have without.
    The weight and bias of a BatchNorm layer stay, and are the gain and the bias of Brock et al. Transposed
    convolutions stay as they are. With it goes adaptive gradient clipping, ``agc``.
    """

    helps = ("feature-shift",)
    paper = "zhuang2024fedwon"

    def with_others(self, model: nn.Module) -> nn.Module:
        from .layers import STANDARDISED  # imports PyTorch

        head = set(head_of(model)[1].modules())
        kinds: tuple[type[Any], ...] = tuple(STANDARDISED)
        found: list[tuple[str, Any]] = [
            (name, layer)
            for name, layer in model.named_modules()
            if isinstance(layer, kinds) and layer not in head
        ]
        if not found:
            raise ValueError("another one: the model has no convolution or linear layer before its head")
        for name, layer in found:
            if type(layer) not in STANDARDISED:
                if _computes_itself(layer):
                    raise ValueError(
                        f"another one with this model, of which the layer {name!r} is a "
                        f"{type(layer).__name__}, whose forward is its own"
                    )
                continue
            if layer.weight[0].numel() < 2:
                raise ValueError(f"another one: in the layer {name!r} an output has one weight only")
            layer.__class__ = STANDARDISED[type(layer)]
        return model


def _computes_itself(layer: nn.Module) -> bool:
    """Whether a convolution or linear layer has another forward than torch's."""
    plain = {nn.Conv1d.forward, nn.Conv2d.forward, nn.Conv3d.forward, nn.Linear.forward}
    return type(layer).forward not in plain


class Hybrid(Norm):
    """BatchNorm that trains on a learnt mix of running and batch statistics, which client ``hbn`` takes."""

    helps = ("label-skew",)
    paper = "chen2025hybrid"

    def instead(self, layer: BatchNorm) -> nn.Module:
        from fedbn_flower.clients.modules.layers import HybridBatchNorm  # imports PyTorch

        if not pools(layer):
            return layer
        return HybridBatchNorm(layer.num_features, layer.eps, layer.momentum, layer.affine)


NORMS: dict[str, type[Norm]] = {
    "keep": Keep,
    "group": Group,
    "layer": Layer,
    "instance": Instance,
    "none": Nothing,
    "scaled-ws": ScaledWS,
    "hybrid": Hybrid,
}
"""Built-in norms by name. To add one, import it above and enter it here."""

__all__ = ["NORMS", "Norm"]
