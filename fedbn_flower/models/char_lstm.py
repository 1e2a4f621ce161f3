"""The module of the recurrent networks."""

from torch import Tensor, nn

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
