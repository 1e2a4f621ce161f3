"""Regression."""

from __future__ import annotations

from typing import ClassVar

from ..modules.lazy_torch import functional, nn, torch
from .base import Problem, shape_of, wrong_shape


class Regression(Problem):
    """Regression by mean squared error of (b, values) to (b, values); ``mae``: mean absolute error."""

    metrics: ClassVar = ("loss", "mae")

    def loss(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        if reduction == "mean":
            return functional.mse_loss(output, targets)
        each = (output - targets).square().flatten(1).mean(1)
        return each.sum() if reduction == "sum" else each

    def scores(self, output: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"mae": (output - targets).abs().flatten(1).mean(1)}

    def misfit(self, model: nn.Module, inputs: torch.Tensor, output: object, outputs: int) -> str:
        return "" if shape_of(output) == (2, outputs) else wrong_shape((2, outputs), output)
