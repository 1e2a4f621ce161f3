"""Networks by name. A model is a function of an `InputSpec`; one line in `MODELS` adds it.

A function without parameters is called without arguments, so an ``nn.Module`` class of fixed shape works too.
"""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name

from fedbn_flower.clients.modules.lazy_torch import nn

from ..core.input_spec import InputSpec

_PLACES = {
    "mlp-bn": "mlp:mlp_bn",
    "2nn": "mlp:two_nn",
    "cnn": "cnn:cnn",
    "cnn-bn": "cnn:cnn_bn",
    "simple-cnn": "cnn:simple_cnn",
    "simple-cnn-bn": "cnn:simple_cnn_bn",
    "simple-cnn-gn": "cnn:simple_cnn_gn",
    "unet": "unet:unet",
    "resnet20": "resnet:resnet20",
    "linear": "linear:linear",
    "char-lstm": "lstm:char_lstm",
    "char-lstm-small": "lstm:char_lstm_small",
}
"""Every built-in model, ``module:function`` in this package, by name; a new one is a line here."""

MODELS: dict[str, Callable[[InputSpec], nn.Module]] = {
    name: resolve_name(f"{__name__}.{place}") for name, place in _PLACES.items()
}

__all__ = ["MODELS", "InputSpec"]
