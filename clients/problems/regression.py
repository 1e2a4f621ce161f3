"""Regression, and least squares with a known optimum."""

from __future__ import annotations

from numpy.typing import NDArray

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


class LeastSquares(Problem):
    """A quadratic loss with a known optimum: half the squared error of a linear model, (b, 1) to (b, 1).

    ``distance`` is the Euclidean distance of the model's parameters to the optimum.

    Parameters
    ----------
    optimum : NDArray
        float64, shape (size + 1,): the weights that minimise the loss of all clients, the bias last.
    """

    metrics = ("loss", "distance")
    predicts = NUMBERS
    compared_by = "distance"

    def __init__(self, optimum: NDArray) -> None:
        self.optimum = torch.from_numpy(optimum)

    @classmethod
    def misfit_of_targets(cls, kind: str, targets: NDArray) -> str:
        return "those of 'quadratic:DIM', whose optimum is known"

    def loss(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        each = 0.5 * (output - targets).square().squeeze(1)
        if reduction == "none":
            return each
        return each.sum() if reduction == "sum" else each.mean()

    def predicted(self, output: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return output.double().cpu(), targets.double().cpu()

    def of_model(self, model: nn.Module) -> dict[str, float]:
        return {"distance": float((_flat(model) - self.optimum).norm())}

    def misfit(self, model: nn.Module, inputs: torch.Tensor, output: object, outputs: int) -> str:
        size = inputs.shape[1]
        if [tuple(p.shape) for p in model.parameters()] == [(1, size), (1,)]:
            weights = _flat(model).to(inputs)
            points = torch.eye(size).to(inputs)
            with torch.no_grad():
                found = model(torch.cat([points, -points]))
            expected = weights[-1] + torch.cat([weights[:-1], -weights[:-1]])
            if found.shape == (2 * size, 1) and torch.allclose(found[:, 0], expected):
                return ""
        return f"'linear', or another with {size} weights and a bias: the optimum is that of a linear model"


def _flat(model: nn.Module) -> torch.Tensor:
    """Return all parameters concatenated, float64."""
    return torch.cat([p.detach().flatten() for p in model.parameters()]).double().cpu()
