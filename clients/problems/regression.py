"""Regression."""

from __future__ import annotations

from ..modules.lazy_torch import functional, nn, torch
from .base import Problem, shape_of, wrong_shape
from .metrics.base import NUMBERS


class Regression(Problem):
    """Regression by mean squared error of (b, values) to (b, values); ``mae``: mean absolute error."""

    learns = "numbers"
    metrics = ("loss", "mae")
    predicts = NUMBERS

    def loss(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        if reduction == "mean":
            return functional.mse_loss(output, targets)
        each = (output - targets).square().flatten(1).mean(1)
        return each.sum() if reduction == "sum" else each

    def scores(self, output: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"mae": (output - targets).abs().flatten(1).mean(1)}

    def predicted(self, output: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return output.double().flatten(1).cpu(), targets.double().flatten(1).cpu()

    def misfit(self, model: nn.Module, inputs: torch.Tensor, output: object, outputs: int) -> str:
        return "" if shape_of(output) == (2, outputs) else wrong_shape((2, outputs), output)
