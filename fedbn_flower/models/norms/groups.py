"""GroupNorm: Wu and He 2018 (arXiv 1803.08494), and its two extremes.

Each example is normalised by itself: a group of its channels, over all positions, by their mean and variance.
Nothing depends on other examples, so there are no statistics to estimate, to send or to keep.
"""

from __future__ import annotations

from fedbn_flower.clients.modules.batch_norm import BatchNorm
from fedbn_flower.clients.modules.lazy_torch import nn

from .base import Norm


class Group(Norm):
    """GroupNorm with ``group:G`` groups of channels: each example by itself (Hsieh et al. 2020)."""

    helps = ("label-skew",)
    paper = "hsieh2020noniid"

    def __init__(self, argument: str = "") -> None:
        if not (argument.isascii() and argument.isdigit() and 0 < int(argument) < 2**31):
            raise ValueError("group:G with G groups of channels, a whole number >= 1")
        self.groups = int(argument)

    def instead(self, layer: BatchNorm) -> nn.Module:
        if layer.num_features % self.groups:
            channels = layer.num_features
            divisors = [str(g) for g in range(1, channels + 1) if channels % g == 0]
            raise ValueError(
                f"a number of groups that divides the channels of every layer: of {channels} channels it is "
                f"one of {', '.join(divisors)}"
            )
        return nn.GroupNorm(self.groups, layer.num_features, layer.eps, layer.affine)


class Layer(Norm):
    """LayerNorm over all channels and positions of an example, with a weight and a bias for each channel."""

    helps = ("label-skew",)
    paper = "ba2016layer"

    def instead(self, layer: BatchNorm) -> nn.Module:
        return nn.GroupNorm(1, layer.num_features, layer.eps, layer.affine)


class Instance(Norm):
    """InstanceNorm: each channel of an example over its positions."""

    helps = ("feature-shift",)
    paper = "ulyanov2016instance"

    def instead(self, layer: BatchNorm) -> nn.Module:
        return nn.GroupNorm(layer.num_features, layer.num_features, layer.eps, layer.affine)
