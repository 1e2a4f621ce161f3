"""Networks by name. A model is a function of what its input looks like; one registry line adds it.

One that has no argument to be given is called without: a class of modules with a fixed shape will do.
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
