"""Focal loss: Lin et al. 2017, "Focal Loss for Dense Object Detection" (arXiv 1708.02002)."""

from torch import Tensor
from torch.nn import functional

from ..settings import setting
from .base import Loss, reduced


class Focal(Loss):
    """``-(1 - p_y)^gamma log p_y`` (equation 4): what is learnt already counts little."""

    of_classes = True
    alike = True

    gamma: float = setting(2.0, ge=0, alias="focal-gamma", description="how little what is learnt counts")

    def __call__(self, output: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
        logs = functional.log_softmax(output, 1).gather(1, targets.unsqueeze(1)).squeeze(1)
        return reduced(-((1 - logs.exp()) ** self.gamma) * logs, reduction)
