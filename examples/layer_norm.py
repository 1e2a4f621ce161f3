"""A model of one's own: a function of what the data look like.

python run_sim.py --model examples/layer_norm.py:mlp_ln --client shared
flwr run . --run-config "model='examples/layer_norm.py:mlp_ln' client='shared'"
"""

from torch import nn

from fedbn_flower.models import InputSpec


def mlp_ln(spec: InputSpec) -> nn.Module:
    """The perceptron ``mlp-bn`` with LayerNorm, which has no statistics that clients could differ in."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(spec.size, 128),
        nn.LayerNorm(128),
        nn.ReLU(),
        nn.Linear(128, spec.outputs),
    )
