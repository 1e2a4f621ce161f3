"""FedWon: Zhuang and Lyu 2024, "Triumphing Multi-domain FL Without Normalization" (arXiv 2306.05879)."""

from __future__ import annotations

from typing import Any

from fedbn_flower.clients.modules.head import head_of
from fedbn_flower.clients.modules.lazy_torch import nn

from .nothing import Nothing


class ScaledWS(Nothing):
    """No normalisation, but standardised weights: ``gamma (W - mu) / (sigma sqrt(N))`` (FedWon).

    mu and sigma are the mean and deviation of the N weights of an output (equation 3), and gamma is the
    constant of ReLU, ``sqrt(2 / (1 - 1/pi))`` (Brock et al. 2021, arXiv 2101.08692). Convolutions and linear
    layers are reparameterised, all but the head: their entries are W, by the names that they have without.
    The weight and bias of a BatchNorm layer stay, and are the gain and the bias of Brock et al. Transposed
    convolutions stay as they are. With it goes adaptive gradient clipping, ``agc``.
    """

    helps = ("feature-shift",)
    paper = "zhuang2024fedwon"

    def with_others(self, model: nn.Module) -> nn.Module:
        from ..layers import STANDARDISED  # imports PyTorch

        head = set(head_of(model)[1].modules())
        kinds: tuple[type[Any], ...] = tuple(STANDARDISED)
        found: list[tuple[str, Any]] = [
            (name, layer)
            for name, layer in model.named_modules()
            if isinstance(layer, kinds) and layer not in head
        ]
        if not found:
            raise ValueError("another one: the model has no convolution or linear layer before its head")
        for name, layer in found:
            if type(layer) not in STANDARDISED:
                if _computes_itself(layer):
                    raise ValueError(
                        f"another one with this model, of which the layer {name!r} is a "
                        f"{type(layer).__name__}, whose forward is its own"
                    )
                continue
            if layer.weight[0].numel() < 2:
                raise ValueError(f"another one: in the layer {name!r} an output has one weight only")
            layer.__class__ = STANDARDISED[type(layer)]
        return model


def _computes_itself(layer: nn.Module) -> bool:
    """Whether a convolution or linear layer has another forward than torch's."""
    plain = {nn.Conv1d.forward, nn.Conv2d.forward, nn.Conv3d.forward, nn.Linear.forward}
    return type(layer).forward not in plain
