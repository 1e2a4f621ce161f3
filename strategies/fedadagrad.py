"""FedAdagrad: Reddi et al. 2021 (arXiv 2003.00295), Algorithm 2, the FedAdagrad line."""

from dataclasses import dataclass

from .adaptive import AdaptiveStrategy
from .vectors import Vector


@dataclass(eq=False, kw_only=True)
class FedAdagrad(AdaptiveStrategy):
    """``v += D^2``; momentum-free by default (``beta_1 = 0``).

    v sums rather than averages, so there is no bias in it; m is used as it is too, as in the paper:
    ``bias_correction`` is off.
    """

    beta_1: float = 0.0
    bias_correction: bool = False

    def second_moment(self, v: Vector, squared: Vector) -> None:
        v += squared

    def corrections(self, t: int) -> tuple[float, float]:
        return (1.0 - self.beta_1**t if self.bias_correction else 1.0), 1.0
