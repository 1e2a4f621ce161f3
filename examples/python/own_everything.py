"""One's own data, model, server rule and client, from Python: ``python -m examples.python.own_everything``.

The same lines work in a notebook, where nothing is in a file that another process could import.
"""

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

from fedbn_flower import Result, simulate
from fedbn_flower.clients import FedAvgClient
from fedbn_flower.models import InputSpec
from fedbn_flower.strategies import PseudoGradientStrategy, Round, RuleState, Vector, setting


class HeavyBall(PseudoGradientStrategy):
    """``m = beta m + D; x += eta m``: momentum on the server (Hsu et al. 2019, arXiv 1909.06335)."""

    eta: float = setting(0.5, gt=0, description="server learning rate")
    beta: float = setting(0.5, ge=0, lt=1, description="decay of the momentum")

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        m = state.vector("m", like=delta)
        m *= self.beta
        m += delta
        return self.eta * m


class OwnHead(FedAvgClient):
    """Keeps the last layer at home."""

    @staticmethod
    def local_entries(model: nn.Module) -> frozenset[str]:
        return frozenset({"3.weight", "3.bias"})


def small(spec: InputSpec) -> nn.Module:
    """One hidden layer of 24 units."""
    return nn.Sequential(nn.Flatten(), nn.Linear(spec.size, 24), nn.ReLU(), nn.Linear(24, spec.classes))


def run(**keys: object) -> Result:
    """Two hospitals, one of which sees the digits in negative: each in its own classes."""
    digits = load_digits()
    x = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    y = digits.target
    x[y > 4] = 255 - x[y > 4]
    test = np.arange(len(x)) % 5 == 0
    return simulate(
        data=(x[~test], y[~test], x[test], y[test]),
        partition="silos:0-4,5-9",
        eval_data="local",
        strategy=HeavyBall(beta=0.25),
        client=OwnHead,
        model=small,
        **keys,
    )


if __name__ == "__main__":
    result = run(rounds=5)
    print(result.history[["round", "train-loss", "loss", "accuracy"]].to_string(index=False))
    print(result.model(client=1))
    result.plot().savefig(result.folder / "own.png")
