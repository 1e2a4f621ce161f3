"""Segmentation: the class of each pixel, or of each voxel of a volume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..modules.lazy_torch import functional, nn, torch
from .base import Problem, shape_of, wrong_shape
from .metrics import Metric, Predicted
from .metrics.base import CLASSES
from .metrics.confusion import Dice, IoU
from .surfaces import (
    CASE_DICE,
    HD95,
    SURFACE_DICE,
    agreement_by_class,
    fullest_slices,
    mean_of_defined,
    thinned,
)

SCORES, TARGETS, SLICES = "scores", "targets", "slices"
REFERENCE, PREDICTED = "reference-pixels", "predicted-pixels"
VOID = 255
"""The target of a pixel that counts for nothing, as at the borders of objects in PASCAL VOC."""
PIXELS = 2**20
MAX_COLUMNS = 20


class Segmentation(Problem):
    """Segmentation by cross-entropy, a mean over pixels; metrics: accuracy in 0..1, Dice and IoU.

    Outputs are (b, classes, ...) and targets class numbers (b, ...) of any integer type, 255 (void) for
    pixels that neither the loss nor a metric counts. ``...`` is (height, width), or (depth, height, width).

    Class 0 is the background. ``dice`` and ``iou`` are the mean over the other classes that occur in the
    masks or the predictions; ``dice-1``, ``dice-2``, ... are of one class each, if there are at most 20. All
    are of the confusion matrix of all pixels, not means over images. `case_metrics` are of single images.
    """

    learns = "masks"
    metrics = ("loss", "accuracy")
    predicts = CLASSES
    background = True
    compared_by = "dice"
    higher_is_better = frozenset({"accuracy"})
    ranges: Mapping[str, tuple[float, float]] = {"accuracy": (0.0, 1.0)}
    values_at_once = PIXELS
    case_metrics = (CASE_DICE, SURFACE_DICE, HD95)

    def usual_metrics(self, predicted: Predicted) -> dict[str, Metric]:
        foreground = [str(number) for number in range(1, predicted.size)]
        dice = Dice(predicted)
        by_class = dice.by_class(foreground) if len(foreground) <= MAX_COLUMNS else dice
        return {"dice": by_class, "iou": IoU(predicted)}

    def loss(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        losses = functional.cross_entropy(output, targets.long(), ignore_index=VOID, reduction="none")
        if reduction == "sum":
            return losses.sum()
        counted = self.predictions(targets)
        if reduction == "none":
            return losses.flatten(1).sum(1) / counted.clamp(min=1)
        return losses.sum() / counted.sum().clamp(min=1)

    def scores(self, output: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"accuracy": (output.argmax(1) == targets).flatten(1).sum(1, dtype=torch.float32)}

    def predictions(self, targets: torch.Tensor) -> torch.Tensor:
        return (targets != VOID).flatten(1).sum(1, dtype=torch.float32)

    def predicted(self, output: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        there = targets != VOID
        return output.movedim(1, -1)[there].double().softmax(1).cpu(), targets[there].long().cpu()

    def misfit(self, model: nn.Module, inputs: torch.Tensor, output: object, outputs: int) -> str:
        expected = (2, outputs, *inputs.shape[2:])
        return "" if shape_of(output) == expected else wrong_shape(expected, output)

    def of_each_case(self, output: torch.Tensor, targets: torch.Tensor) -> dict[str, NDArray]:
        """Return `case_columns` of each image, and a slice of what was predicted.

        Void pixels count as background in both masks.
        """
        said, truth = (t.to(torch.uint8).cpu().numpy() for t in (output.argmax(1), targets))
        counted = truth != VOID
        said, truth = np.where(counted, said, 0), np.where(counted, truth, 0)
        classes = output.shape[1]
        pairs = zip(said, truth, strict=True)
        found = [agreement_by_class(*pair, classes, self.spacing, self.tolerance) for pair in pairs]
        by_class = _columns_by_class(classes)
        rows = [
            (
                np.vstack([mean_of_defined(values), *(values if by_class else ())]).ravel(),
                np.vstack([sizes.sum(0), *(sizes if by_class else ())]).ravel(),
            )
            for values, sizes in found
        ]
        scores, sizes = (np.array(part) for part in zip(*rows, strict=True))
        places = slice_numbers(truth)
        return {
            SCORES: scores,
            TARGETS: sizes,
            SLICES: thinned(said if places is None else said[np.arange(len(said)), places]),
        }

    def case_columns(self, names: Sequence[str]) -> tuple[list[str], list[str]]:
        suffixes = ["", *(f"-{name}" for name in names[1:] if _columns_by_class(len(names)))]
        return tuple(  # type: ignore[return-value]
            [f"{kind}{suffix}" for suffix in suffixes for kind in kinds]
            for kinds in (self.case_metrics, (REFERENCE, PREDICTED))
        )


def _columns_by_class(classes: int) -> bool:
    return 1 < classes - 1 <= MAX_COLUMNS


def slice_numbers(masks: NDArray[np.uint8]) -> NDArray[np.int64] | None:
    """Return which slice of each volume is shown, (n,), by its mask; None of pictures."""
    return None if masks.ndim < 4 else fullest_slices((masks > 0) & (masks != VOID))
