"""A small network for grey scans: three convolutions with BatchNorm, the maximum over the picture, a head.

python run_sim.py --model examples/scan_cnn.py:scan_cnn
flwr run . --run-config "model='examples/scan_cnn.py:scan_cnn'"
"""

from collections import OrderedDict
from itertools import pairwise

from torch import nn

from fedbn_flower.models import InputSpec


def scan_cnn(spec: InputSpec) -> nn.Module:
    """23,000 parameters. A finding may be anywhere, so each channel counts where it is greatest."""
    widths = (spec.channels, 16, 32, 64)
    features = []
    for inputs, outputs in pairwise(widths):
        features += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
        features += [nn.MaxPool2d(2)]
    parts = {
        "features": nn.Sequential(*features),
        "highest": nn.AdaptiveMaxPool2d(1),
        "flat": nn.Flatten(),
        "head": nn.Linear(widths[-1], spec.outputs),
    }
    return nn.Sequential(OrderedDict(parts))
