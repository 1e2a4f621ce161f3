"""The 2NN as TensorFlow begins it, Glorot and Bengio 2010, equation 16, biases of 0."""

from torch import nn

from fedbn_flower.core.input_spec import InputSpec
from fedbn_flower.models.networks import two_nn


def glorot_2nn(spec: InputSpec) -> nn.Module:
    """Weights uniform within sqrt(6 / (inputs + outputs)), where PyTorch's are within sqrt(1 / inputs)."""
    model = two_nn(spec)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return model
