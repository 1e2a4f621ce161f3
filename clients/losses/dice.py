"""The soft Dice loss of segmentation, by itself and with cross-entropy.

Milletari et al. 2016, "V-Net" (arXiv 1606.04797), and Isensee et al. 2021, "nnU-Net" (arXiv 1904.08128).
"""

from __future__ import annotations

from ..modules.lazy_torch import functional, torch
from ..problems.segmentation import VOID
from .base import Loss, reduced

SMOOTH = 1e-5


class Dice(Loss):
    """``1 - mean over classes of (2 sum p g + s) / (sum p + sum g + s)``, sums over an image's pixels.

    p are the probabilities of a class, g is 1 where the mask has it, s is 1e-5. Void pixels are left out, and
    the background is a class. Section 3 of V-Net has squares in the denominator; nnU-Net, as here, has none.
    nnU-Net leaves out the background. A batch's loss is the mean over its images.
    """

    purpose = "For masks of small structures: overlap instead of pixels."
    helps = ("rare-classes",)
    paper = "milletari2016vnet"

    of_masks = True
    alike = True

    def __call__(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        return reduced(soft_dice_loss(output, targets), reduction)


class DiceCe(Loss):
    """The soft Dice loss plus cross-entropy, as in nnU-Net (``loss dice`` says of which classes)."""

    purpose = "For masks: overlap and pixels, the usual choice."
    helps = ("rare-classes",)
    paper = "isensee2021nnunet"

    of_masks = True
    alike = True

    def __call__(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        dice = reduced(soft_dice_loss(output, targets), reduction)
        return dice + self.problem.loss(output, targets, reduction)


def soft_dice_loss(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the soft Dice loss of each image, (b,), of outputs (b, classes, ...) and targets (b, ...)."""
    counted = targets != VOID
    classes = functional.one_hot(targets.long().where(counted, 0), output.shape[1]).movedim(-1, 1)
    p = (output.softmax(1) * counted.unsqueeze(1)).flatten(2)
    g = (classes * counted.unsqueeze(1)).to(p).flatten(2)
    dice = (2 * (p * g).sum(2) + SMOOTH) / (p.sum(2) + g.sum(2) + SMOOTH)
    return 1 - dice.mean(1)
