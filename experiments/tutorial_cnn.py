"""The network with which TensorFlow Privacy's tutorial trains MNIST by DP-SGD."""

from torch import nn

from fedbn_flower.core.input_spec import InputSpec


def tutorial_cnn(spec: InputSpec) -> nn.Module:
    """Two convolutions, each max-pooled, and 32 units, without activations (26,010 parameters on MNIST).

    Weights begin normal with variance 2 / inputs, where TensorFlow cuts the tails; biases at 0.
    """
    height, width = (((side - 2) // 2 - 4) // 2 for side in (spec.height, spec.width))
    model = nn.Sequential(
        nn.Conv2d(spec.channels, 16, 8, stride=2, padding=3),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(32 * height * width, 32),
        nn.Linear(32, spec.outputs),
    )
    for layer in model:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
    return model
