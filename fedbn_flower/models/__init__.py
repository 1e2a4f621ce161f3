"""Networks by name. A model is a function of an `InputSpec`; an entry in `MODELS` adds it.

A function without parameters is called without arguments, so an ``nn.Module`` class of fixed shape works too.
"""

from __future__ import annotations

from collections.abc import Callable

from fedbn_flower.clients.modules.lazy_torch import nn

from ..core.input_spec import InputSpec
from .networks import (
    char_lstm,
    char_lstm_small,
    cnn,
    cnn_bn,
    linear,
    mlp_bn,
    resnet20,
    simple_cnn,
    simple_cnn_bn,
    simple_cnn_gn,
    two_nn,
    unet,
    unet_3d,
)

MODELS: dict[str, Callable[[InputSpec], nn.Module]] = {
    "mlp-bn": mlp_bn,
    "2nn": two_nn,
    "cnn": cnn,
    "cnn-bn": cnn_bn,
    "simple-cnn": simple_cnn,
    "simple-cnn-bn": simple_cnn_bn,
    "simple-cnn-gn": simple_cnn_gn,
    "unet": unet,
    "unet-3d": unet_3d,
    "resnet20": resnet20,
    "linear": linear,
    "char-lstm": char_lstm,
    "char-lstm-small": char_lstm_small,
}
"""Built-in models by name. To add one, import it above and enter it here."""

__all__ = ["MODELS", "InputSpec"]
