"""Recurrent networks for next-character prediction."""

from __future__ import annotations

from fedbn_flower.clients.modules.lazy_torch import nn

from ..core.input_spec import InputSpec
from ..core.papers import paper


@paper("mcmahan2017fedavg")
def char_lstm(spec: InputSpec) -> nn.Module:
    """McMahan et al.'s character LSTM: embedding 8, two layers of 256 units (824,425 for 97 characters).

    PyTorch's LSTM has two biases per gate, which adds 2,048 parameters.
    """
    return _char_lstm(spec, layers=2, units=256)


def char_lstm_small(spec: InputSpec) -> nn.Module:
    """A character LSTM with one layer of 128 units: a tenth of the work of char-lstm (83,945 parameters)."""
    return _char_lstm(spec, layers=1, units=128)


def _char_lstm(spec: InputSpec, layers: int, units: int) -> nn.Module:
    from .char_lstm import CharLSTM  # imports PyTorch

    if spec.predicts != "characters":
        raise ValueError(f"expected text, not {spec}")
    return CharLSTM(spec.outputs, layers, units)
