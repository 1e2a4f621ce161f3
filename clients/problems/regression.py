"""Regression."""

from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional

from .base import Problem, shape_of, wrong_shape


class Regression(Problem):
    """Regression by mean squared error of (b, values) to (b, values); ``mae``: mean absolute error."""

    metrics: ClassVar = ("loss", "mae")

    def loss(self, output: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
        if reduction == "mean":
            return functional.mse_loss(output, targets)
        each = (output - targets).square().flatten(1).mean(1)
        return each.sum() if reduction == "sum" else each

    def scores(self, output: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return {"mae": (output - targets).abs().flatten(1).mean(1)}

    def misfit(self, model: nn.Module, inputs: Tensor, output: object, outputs: int) -> str:
        return "" if shape_of(output) == (2, outputs) else wrong_shape((2, outputs), output)
