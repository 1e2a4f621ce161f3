"""Linear models."""

from __future__ import annotations

from fedbn_flower.clients.modules.lazy_torch import nn

from ..core.input_spec import InputSpec


def linear(spec: InputSpec) -> nn.Module:
    """One layer: softmax regression of classes, linear regression of numbers."""
    return nn.Sequential(nn.Flatten(), nn.Linear(spec.size, spec.outputs))
