"""A problem of one's own: ordinal regression by cumulative logits (McCullagh 1980), with its own metric.

python run_sim.py --problem examples/ordinal.py:Ordinal --metrics examples/ordinal.py:ClassError
flwr run . --run-config "problem='examples/ordinal.py:Ordinal' metrics='examples/ordinal.py:ClassError'"
"""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedbn_flower.clients import Metric, Problem


class Ordinal(Problem):
    """Classes in an order, by the logits of ``P(y > k)``, k = 0 ... classes - 2; accuracy in 0..1.

    The loss is the sum of their binary cross-entropies. The predicted class is the number of k for which
    ``P(y > k)`` is 1/2 or more. ``class-distance`` is its mean distance to the true class.
    """

    learns = "classes"
    metrics = ("loss", "accuracy", "class-distance")
    predicts = "classes"
    compared_by = "class-distance"
    higher_is_better = frozenset({"accuracy"})
    ranges: ClassVar = {"accuracy": (0.0, 1.0)}

    def outputs_for(self, targets: int) -> int:
        """A logit for each border between two classes."""
        return targets - 1

    def loss(self, output: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
        above = (targets.unsqueeze(1) > torch.arange(output.shape[1], device=output.device)).to(output)
        each = functional.binary_cross_entropy_with_logits(output, above, reduction="none").sum(1)
        return {"mean": each.mean, "sum": each.sum}[reduction]() if reduction != "none" else each

    def scores(self, output: Tensor, targets: Tensor) -> dict[str, Tensor]:
        distance = ((output >= 0).sum(1) - targets).abs().float()
        return {"accuracy": (distance == 0).float(), "class-distance": distance}

    def predicted(self, output: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities of the classes, differences of ``P(y > k)`` made to fall with k; and the classes."""
        above = output.double().sigmoid().cummin(1).values
        ends = above.new_ones(len(above), 1)
        borders = torch.cat([ends, above, 0 * ends], 1)
        return (borders[:, :-1] - borders[:, 1:]).cpu(), targets.cpu()

    def misfit(self, model: torch.nn.Module, inputs: Tensor, output: object, outputs: int) -> str:
        fits = isinstance(output, Tensor) and output.shape == (2, outputs)
        return "" if fits else f"one with {outputs} outputs, one less than there are classes"


class ClassError(Metric):
    """Mean over classes of the mean distance to the expected class, ``sum_k k P(y = k)``."""

    kinds = frozenset({"classes"})
    higher_is_better = False
    range = (0.0, np.inf)

    def batch(self, scores: Tensor, targets: Tensor) -> np.ndarray:
        expected = scores @ torch.arange(self.predicted.size, dtype=scores.dtype)
        sums = torch.bincount(targets, (expected - targets).abs(), minlength=self.predicted.size)
        return torch.stack([sums.double(), torch.bincount(targets, minlength=self.predicted.size)]).numpy()

    def values(self, total: np.ndarray) -> np.ndarray:
        return total[0] / total[1]
