"""Networks of other libraries by name: ``torchvision:NAME``, ``timm:NAME`` and ``monai:NAME``.

Arguments follow a second colon: ``monai:UNet:channels=16/32,strides=2,norm=batch``. What the data decide is
filled in where the network has an argument for it and none is given: channels, outputs, axes and sizes.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn, get_type_hints

from fedbn_flower.clients.modules.lazy_torch import nn

from ..core.errors import UserError, not_allowed, unknown_name
from ..core.input_spec import InputSpec

FORM = "LIBRARY:NAME or LIBRARY:NAME:ARGUMENT=VALUE,... of torchvision, timm or monai"
LIBRARIES = ("torchvision", "timm", "monai")
INSTALL = "pip install 'fedbn-flower[networks]'"
PRETRAINED = ("weights", "weights_backbone", "pretrained", "pretrained_cfg")
"""Arguments that download weights, which `init` reads from a file instead."""
MOST_SHOWN = 8
WORDS: Mapping[str, object] = {"true": True, "false": False, "none": None}


def is_of_library(name: str) -> bool:
    """Return whether a model's name is of one of the libraries."""
    return name.partition(":")[0] in LIBRARIES and ":" in name


def of_library(text: str) -> LibraryModel:
    """Return the function of such a name; the library is not imported yet.

    Raises
    ------
    UserError
        For another form, an argument that downloads weights, or a library that is not installed.
    """
    library, _, rest = text.partition(":")
    name, _, words = rest.partition(":")
    if not name.isidentifier() and library != "timm":
        raise not_allowed("model", text, FORM)
    arguments: dict[str, Any] = {}
    for word in words.split(",") if words else ():
        argument, equals, value = (part.strip() for part in word.partition("="))
        if not (argument.isidentifier() and equals and value) or argument in arguments:
            raise not_allowed("model", text, f"{FORM}, each argument once")
        if argument in PRETRAINED:
            raise not_allowed("model", text, f"no {argument}: weights are read from a file, init=FILE")
        arguments[argument] = value_of(value)
    if find_spec(library) is None:
        raise UserError(f"model: {text!r} needs another package: {INSTALL}")
    return LibraryModel(text, library, name, arguments)


def value_of(text: str) -> Any:
    """Return a number, true, false, none or text; several joined by ``/`` are a tuple."""
    if "/" in text:
        return tuple(value_of(word) for word in text.split("/") if word)
    if text in WORDS:
        return WORDS[text]
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if math.isfinite(number) else text
    return text


@dataclass(frozen=True)
class LibraryModel:
    """A network of a library, made for the data that it is called with."""

    text: str
    library: str
    name: str
    arguments: Mapping[str, Any]

    def __call__(self, spec: InputSpec) -> nn.Module:
        """Return the network with random weights.

        Raises
        ------
        UserError
            When the library has no such network, or it does not take its arguments.
        """
        return MAKERS[self.library](self, spec)

    def made(self, function: Callable[..., Any], filled: Mapping[str, Any]) -> nn.Module:
        """Return the network: with its arguments, and of ``filled`` those that it has and lacks."""
        has, takes_others = _parameters(function)
        given = {name: value for name, value in filled.items() if name in has} | dict(self.arguments)
        if unknown := [] if takes_others else sorted(given.keys() - has):
            raise unknown_name("model", unknown[0], has, meant=f"of the arguments of {self.name!r}")
        try:
            made: nn.Module = function(**given)
        except Exception as error:  # whatever a library makes of its arguments
            self.refuse(error)
        return made

    def refuse(self, error: Exception) -> NoReturn:
        """Raise the error for arguments that a library refused."""
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise not_allowed("model", self.text, f"what {self.library}'s {self.name} takes: {why}") from error

    def unknown(self, names: Iterable[str]) -> UserError:
        """Return the error for a name that the library does not have; the most similar ones are shown."""
        similar = get_close_matches(self.name, list(names), MOST_SHOWN)
        return unknown_name("model", self.name, similar, f"another network of {self.library}")


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
    if model.name not in names:
        raise model.unknown(names)
    filled = {
        "num_classes": spec.outputs,
        "weights": None,
        "weights_backbone": None,
        "aux_logits": False,
        "aux_loss": False,
    }
    made = model.made(models.get_model_builder(model.name), filled)
    _with_channels(made, spec.shape[0])
    if type(made).__module__.startswith(models.segmentation.__name__):
        from .outputs import OnlyOut  # imports PyTorch

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

    if not timm.is_model(model.name):
        raise model.unknown(timm.list_models())
    data = {"num_classes": spec.outputs, "in_chans": spec.shape[0]}
    try:
        made: nn.Module = timm.create_model(model.name, pretrained=False, **{**data, **model.arguments})
    except Exception as error:
        model.refuse(error)
    return made


def _monai(model: LibraryModel, spec: InputSpec) -> nn.Module:
    nets = import_module("monai.networks.nets")
    function = getattr(nets, model.name, None)
    if not callable(function):
        raise model.unknown(name for name, value in vars(nets).items() if callable(value))
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
