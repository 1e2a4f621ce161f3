"""Recurrent networks for next-character prediction."""

from torch import Tensor, nn

from ..core.input_spec import InputSpec
from ..core.papers import paper

EMBEDDING = 8


class CharLSTM(nn.Module):
    """Map character numbers (b, length) to scores (b, length, characters).

    An embedding, LSTM layers, and a linear layer applied at every position.
    """

    def __init__(self, characters: int, layers: int, units: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, EMBEDDING)
        self.lstm = nn.LSTM(EMBEDDING, units, layers, batch_first=True)
        self.output = nn.Linear(units, characters)

    def forward(self, characters: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(characters))
        scores: Tensor = self.output(states)
        return scores


@paper("mcmahan2017fedavg")
def char_lstm(spec: InputSpec) -> nn.Module:
    """McMahan et al.'s character LSTM: embedding 8, two layers of 256 units (824,425 for 97 characters).

    PyTorch's LSTM has two biases per gate, which adds 2,048 parameters.
    """
    return CharLSTM(_characters(spec), layers=2, units=256)


def char_lstm_small(spec: InputSpec) -> nn.Module:
    """A character LSTM with one layer of 128 units: a tenth of the work of char-lstm (83,945 parameters)."""
    return CharLSTM(_characters(spec), layers=1, units=128)


def _characters(spec: InputSpec) -> int:
    if spec.predicts != "characters":
        raise ValueError(f"expected text, not {spec}")
    return spec.outputs
