"""FedAdagrad: Reddi et al. 2021 (arXiv 2003.00295), Algorithm 2, the FedAdagrad line."""

from ..aggregation.vectors import Vector
from .adaptive import AdaptiveStrategy


class FedAdagrad(AdaptiveStrategy):
    """``v += D^2``; momentum-free by default (``beta_1 = 0``).

    v sums rather than averages, so there is no bias in it, and no decay ``beta_2``; m is used as it is too,
    as in the paper: ``bias_correction`` is off.
    """

    beta_1 = 0.0
    bias_correction = False

    def second_moment(self, v: Vector, squared: Vector) -> None:
        v += squared
