"""FedDecorr: Shi et al. 2023, "Towards Understanding and Mitigating Dimensional Collapse"."""

from __future__ import annotations

from fedbn_flower.core.ground.settings import setting

from ..modules.head import features
from ..modules.lazy_torch import nn, torch
from .base import Objective

EPSILON = 1e-8  # beside the variance, as in the authors' code: a feature may be constant in a batch


class FedDecorr(Objective):
    """``f + beta/d^2 ||K||_F^2``, K the correlation matrix of a batch's d features (arXiv 2210.00226).

    The features are the input of the head. A batch of one example has no correlations and adds nothing.
    """

    purpose = "Keeps features from collapsing to few directions: strong label skew."
    helps = ("label-skew",)
    paper = "shi2023feddecorr"

    beta: float = setting(
        0.1, ge=0, alias="decorr-beta", description="weight of the correlations", allow_inf_nan=False
    )

    of_features = True

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        z, output = features(model, inputs)
        loss = self.criterion(output, targets, reduction)
        return (loss + self.beta * mean_squared_correlation(z) if len(z) > 1 else loss), output


def mean_squared_correlation(z: torch.Tensor) -> torch.Tensor:
    """Return ``||K||_F^2 / d^2`` of features (b, d).

    ``torch.corrcoef`` would be NaN where a feature is constant. ``Z^T Z`` and ``Z Z^T`` have one norm, so the
    smaller one is computed.
    """
    count, width = z.shape
    variance, mean = torch.var_mean(z, 0, correction=0)
    normal = (z - mean) / (variance + EPSILON).sqrt()
    products = normal @ normal.T if count < width else normal.T @ normal
    return (products / count).square().sum() / width**2
