"""A rule, an objective, a client and models of one's own, as a script or a notebook defines them."""

from torch import nn

from clients import FedAvgClient, Objective, setting
from strategies import PseudoGradientStrategy
from strategies import setting as own_setting


class Scaled(PseudoGradientStrategy):
    scale: float = own_setting(1.0, gt=0, le=2)

    def server_step(self, delta, state, round):
        return self.scale * delta


class Pull(Objective):
    pull: float = setting(0.0, ge=0)

    def correct_gradients(self):
        for _, w, gradient in self.gradients():
            gradient.add_(w, alpha=self.pull)


class KeepsBiases(FedAvgClient):
    @staticmethod
    def local_entries(model):
        return frozenset(name for name in model.state_dict() if name.endswith("bias"))


def thin(spec):
    return nn.Sequential(nn.Flatten(), nn.Linear(spec.size, spec.classes))


class Fixed(nn.Module):
    """Needs no shape."""

    def __init__(self, hidden=8):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(64, hidden), nn.BatchNorm1d(hidden), nn.Linear(hidden, 10)
        )

    def forward(self, x):
        return self.layers(x)
