"""Classification."""

from __future__ import annotations

from collections.abc import Mapping

from fedbn_flower.core.ground.wire import CLASS_EXAMPLES, CLASS_HITS

from ..modules.lazy_torch import functional, nn, torch
from .base import Problem, shape_of, wrong_shape
from .metrics.base import CLASSES


class Classification(Problem):
    """Classification by cross-entropy of (b, classes) outputs and class indices (b,); accuracy in 0..1."""

    learns = "classes"
    metrics = ("loss", "accuracy")
    predicts = CLASSES
    compared_by = "accuracy"
    higher_is_better = frozenset({"accuracy"})
    ranges: Mapping[str, tuple[float, float]] = {"accuracy": (0.0, 1.0)}

    def loss(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        return functional.cross_entropy(output, targets, reduction=reduction)

    def scores(self, output: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"accuracy": (output.argmax(1) == targets).float()}

    def by_class(self, output: torch.Tensor, targets: torch.Tensor, classes: int) -> dict[str, torch.Tensor]:
        hit = targets[output.argmax(1) == targets]
        counted = {CLASS_HITS: hit, CLASS_EXAMPLES: targets}
        return {name: torch.bincount(some, minlength=classes) for name, some in counted.items()}

    def predicted(self, output: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return output.double().softmax(1).cpu(), targets.cpu()

    def misfit(self, model: nn.Module, inputs: torch.Tensor, output: object, outputs: int) -> str:
        shape = shape_of(output)
        fits = len(shape) == 2 and shape[0] == 2 and shape[1] >= outputs
        return "" if fits else wrong_shape((2, outputs), output)
