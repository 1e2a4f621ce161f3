"""Multilayer perceptrons."""

from __future__ import annotations

from fedbn_flower.clients.modules.lazy_torch import nn

from ..core.input_spec import InputSpec
from ..core.papers import paper


def mlp_bn(spec: InputSpec) -> nn.Module:
    """784-128-BN-ReLU-10 on 28x28 images; the first width follows the image size."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(spec.size, 128),
        nn.BatchNorm1d(128),
        nn.ReLU(),
        nn.Linear(128, spec.outputs),
    )


@paper("mcmahan2017fedavg")
def two_nn(spec: InputSpec) -> nn.Module:
    """McMahan et al.'s 2NN: two hidden layers of 200 units (199,210 parameters on MNIST)."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(spec.size, 200),
        nn.ReLU(),
        nn.Linear(200, 200),
        nn.ReLU(),
        nn.Linear(200, spec.outputs),
    )
