"""FedAdagrad: Reddi et al. 2021 (arXiv 2003.00295), Algorithm 2, the FedAdagrad line."""

from ..aggregation.vectors import Vector
from .adaptive import AdaptiveStrategy


class FedAdagrad(AdaptiveStrategy):
    """``x += eta m / (sqrt(v) + tau)``, ``m = b1 m + (1 - b1) D``, ``v += D^2``; by default b1 is 0.

    v is a sum, not an average, so it has no bias and no decay ``beta_2``. As in the paper, m is not corrected
    either: ``bias_correction`` is off.
    """

    purpose = "A step size for each parameter that only shrinks: for sparse gradients, as of text."
    helps = ("few-rounds", "label-skew")
    paper = "reddi2021adaptive"

    beta_1 = 0.0
    bias_correction = False

    def second_moment(self, v: Vector, squared: Vector) -> None:
        v += squared
