"""Networks by name. A model is a function of what its input looks like; one registry line adds it.

One that has no argument to be given is called without: a class of modules with a fixed shape will do.
"""

from collections.abc import Callable
from pkgutil import resolve_name

from torch import nn

from ..core.input_spec import InputSpec

_PLACES = {
    "mlp-bn": "mlp:mlp_bn",
    "2nn": "mlp:two_nn",
    "cnn": "cnn:cnn",
    "cnn-bn": "cnn:cnn_bn",
    "simple-cnn": "cnn:simple_cnn",
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
