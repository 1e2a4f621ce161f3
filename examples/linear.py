"""A model of one's own: a function of the images' shape.

python run_sim.py --model examples/linear.py:linear --client fedavg
flwr run . --run-config "model='examples/linear.py:linear' client='fedavg'"
"""

from torch import nn

from fedbn_flower.models import InputSpec


def linear(spec: InputSpec) -> nn.Module:
    """Softmax regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(spec.size, spec.classes))
