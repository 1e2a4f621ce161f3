"""Networks of other libraries by name: ``torchvision:NAME``, ``timm:NAME`` and ``monai:NAME``.

Arguments follow a second colon: ``monai:UNet:channels=16/32,strides=2,norm=batch``. What the data decide is
filled in where the network has an argument for it and none is given: channels, outputs, axes and sizes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, get_type_hints

from fedbn_flower.clients.modules.lazy_torch import nn

from ..core.errors import not_allowed, unknown_name
from ..core.input_spec import InputSpec
from ..core.named_call import OF_LIBRARY, NamedCall, parse_call

PRETRAINED = ("weights", "weights_backbone", "pretrained", "pretrained_cfg")
"""Arguments that download weights, which `init` reads from a file instead."""


def of_library(text: str) -> LibraryModel:
    """Return the function of such a name; the library is not imported yet.

    Raises
    ------
    UserError
        See `parse_call`; for an argument that downloads weights.
    """
    call = parse_call("model", text, OF_LIBRARY)
    if downloads := next((name for name in PRETRAINED if name in call.arguments), ""):
        raise not_allowed("model", text, f"no {downloads}: weights are read from a file, init=FILE")
    return LibraryModel(call)


@dataclass(frozen=True)
class LibraryModel:
    """A network of a library, made for the data that it is called with."""

    call: NamedCall

    def __call__(self, spec: InputSpec) -> nn.Module:
        """Return the network with random weights.

        Raises
        ------
        UserError
            When the library has no such network, or it does not take its arguments.
        """
        return MAKERS[self.call.library](self, spec)

    def made(self, function: Callable[..., Any], filled: Mapping[str, Any]) -> nn.Module:
        """Return the network: with its arguments, and of ``filled`` those that it has and lacks."""
        has, takes_others = _parameters(function)
        given = {name: value for name, value in filled.items() if name in has} | dict(self.call.arguments)
        if unknown := [] if takes_others else sorted(given.keys() - has):
            raise unknown_name("model", unknown[0], has, meant=f"of the arguments of {self.call.name!r}")
        try:
            made: nn.Module = function(**given)
        except Exception as error:  # whatever a library makes of its arguments
            self.call.refuse(error)
        return made


def _parameters(function: Callable[..., Any]) -> tuple[set[str], bool]:
    """Return the names of a function's parameters, and whether it may take others.

    A function of ``**kwargs`` that returns a network, such as MONAI's ``resnet10``, passes them to its class.
    """
    parameters = inspect.signature(function).parameters.values()
    names = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    takes_others = any(one.kind is one.VAR_KEYWORD for one in parameters)
    if takes_others and not inspect.isclass(function):
        made = get_type_hints(function).get("return")
        if inspect.isclass(made):
            names |= set(inspect.signature(made).parameters) - {"args", "kwargs"}
    return names, takes_others


def _torchvision(model: LibraryModel, spec: InputSpec) -> nn.Module:
    """Make one of torchvision; its first convolution is replaced where the data have not three channels."""
    from torchvision import models

    names = models.list_models()
    if model.call.name not in names:
        raise model.call.unknown(names)
    filled = {
        "num_classes": spec.outputs,
        "weights": None,
        "weights_backbone": None,
        "aux_logits": False,
        "aux_loss": False,
    }
    made = model.made(models.get_model_builder(model.call.name), filled)
    _with_channels(made, spec.shape[0])
    if type(made).__module__.startswith(models.segmentation.__name__):
        from ..models.layers import OnlyOut  # imports PyTorch

        return OnlyOut(made)
    return made


def _with_channels(network: nn.Module, channels: int) -> None:
    """Replace the first convolution, if it takes other channels, by one of these."""
    for name, layer in network.named_modules():
        if not isinstance(layer, (nn.Conv2d, nn.Conv3d)):
            continue
        if layer.in_channels != channels and layer.groups == 1:
            parent, _, last = name.rpartition(".")
            network.get_submodule(parent).register_module(last, _convolution(layer, channels))
        return


def _convolution(layer: nn.Conv2d | nn.Conv3d, channels: int) -> nn.Module:
    kind: Any = type(layer)
    shape = layer.kernel_size, layer.stride, layer.padding, layer.dilation
    return kind(channels, layer.out_channels, *shape, bias=layer.bias is not None)  # type: ignore[no-any-return]


def _timm(model: LibraryModel, spec: InputSpec) -> nn.Module:
    import timm

    if not timm.is_model(model.call.name):
        raise model.call.unknown(timm.list_models())
    data = {"num_classes": spec.outputs, "in_chans": spec.shape[0]}
    try:
        made: nn.Module = timm.create_model(
            model.call.name, pretrained=False, **{**data, **model.call.arguments}
        )
    except Exception as error:
        model.call.refuse(error)
    return made


def _monai(model: LibraryModel, spec: InputSpec) -> nn.Module:
    nets = import_module("monai.networks.nets")
    function = getattr(nets, model.call.name, None)
    if not callable(function):
        raise model.call.unknown(name for name, value in vars(nets).items() if callable(value))
    channels, *sizes = spec.shape
    filled: dict[str, Any] = {
        "spatial_dims": len(sizes),
        "in_channels": channels,
        "n_input_channels": channels,
        "out_channels": spec.outputs,
        "num_classes": spec.outputs,
        "img_size": tuple(sizes),
        "classification": spec.predicts != "masks",
        "pretrained": False,
    }
    return model.made(function, filled)


MAKERS: dict[str, Callable[[LibraryModel, InputSpec], nn.Module]] = {
    "torchvision": _torchvision,
    "timm": _timm,
    "monai": _monai,
}
