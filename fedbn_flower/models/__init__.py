"""Networks by name. A model is a function of an `InputSpec`; one line in `MODELS` adds it.

A function without parameters is called without arguments, so an ``nn.Module`` class of fixed shape works too.
"""

from collections.abc import Callable

from torch import nn

from ..core.input_spec import InputSpec
from .cnn import cnn, cnn_bn, simple_cnn
from .linear import linear
from .lstm import char_lstm, char_lstm_small
from .mlp import mlp_bn, two_nn
from .resnet import resnet20

MODELS: dict[str, Callable[[InputSpec], nn.Module]] = {
    "mlp-bn": mlp_bn,
    "2nn": two_nn,
    "cnn": cnn,
    "cnn-bn": cnn_bn,
    "simple-cnn": simple_cnn,
    "resnet20": resnet20,
    "linear": linear,
    "char-lstm": char_lstm,
    "char-lstm-small": char_lstm_small,
}

__all__ = ["MODELS", "InputSpec"]
