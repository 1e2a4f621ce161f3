"""Next-character prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..modules.lazy_torch import functional, nn, torch
from .base import Problem, shape_of, wrong_shape
from .metrics.base import CLASSES

NOTHING = -1
LARGEST = 709.0  # exp of a greater loss overflows


class NextCharacter(Problem):
    """Next-character prediction by cross-entropy; metrics: accuracy in 0..1 and perplexity, exp(loss).

    Outputs are (b, length, characters), targets character indices (b, length), -1 for no target. All metrics
    are means over characters: a window that is half full has half the weight.
    """

    learns = "characters"
    metrics = ("loss", "accuracy", "perplexity")
    predicts = CLASSES
    compared_by = "accuracy"
    higher_is_better = frozenset({"accuracy"})
    ranges: Mapping[str, tuple[float, float]] = {"accuracy": (0.0, 1.0), "perplexity": (0.0, math.inf)}

    def loss(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        loss = functional.cross_entropy(
            output.flatten(0, 1), targets.flatten(), ignore_index=NOTHING, reduction=reduction
        )
        return loss.view_as(targets).sum(1) / self.predictions(targets) if reduction == "none" else loss

    def scores(self, output: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"accuracy": (output.argmax(2) == targets).sum(1, dtype=torch.float32)}

    def predictions(self, targets: torch.Tensor) -> torch.Tensor:
        return (targets != NOTHING).sum(1, dtype=torch.float32)

    def derived(self, means: Mapping[str, float]) -> dict[str, float]:
        loss = means["loss"]
        return {"perplexity": math.exp(loss) if loss < LARGEST else math.inf}

    def predicted(self, output: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        there = targets != NOTHING
        return output[there].double().softmax(1).cpu(), targets[there].cpu()

    def misfit(self, model: nn.Module, inputs: torch.Tensor, output: object, outputs: int) -> str:
        shape = shape_of(output)
        fits = len(shape) == 3 and shape[:2] == inputs.shape and shape[2] >= outputs
        return "" if fits else wrong_shape((*inputs.shape, outputs), output)
