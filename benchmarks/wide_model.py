"""A model of few and large arrays, whose answers fill a server's memory soonest."""

from torch import nn

from fedbn_flower.models import InputSpec

WIDTH = 3300


def wide(spec: InputSpec) -> nn.Module:
    """Return a perceptron with two hidden layers: of the digits, 11.1 million numbers, 45 MB."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(spec.size, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(),
        nn.Linear(WIDTH, spec.outputs),
    )  # fmt: skip
