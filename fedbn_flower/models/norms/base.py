"""What a norm is, and how it replaces the BatchNorm layers of any model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from fedbn_flower.clients.modules.batch_norm import BatchNorm, batch_norm_modules
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
    """What it is for: names of `core.ground.purposes.PURPOSES`, the main one first. Not inherited."""
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
