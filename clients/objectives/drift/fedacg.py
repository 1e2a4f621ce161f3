"""FedACG: Kim et al. 2024, "Federated Learning with Accelerated Client Gradient" (arXiv 2201.03172)."""

from typing import ClassVar

from fedbn_flower.core.ground.settings import setting

from ..base import Objective


class FedACG(Objective):
    """``f + beta/2 ||w - y||^2``, y the model that the client got: x and what momentum adds to it.

    The authors' code has 0.001 for beta/2.
    """

    purpose = "The clients' half of FedACG: holds them near where momentum leads."
    helps = ("label-skew", "few-rounds")
    paper = "kim2024fedacg"

    requires: ClassVar = {"strategy": {"fedacg"}}
    elementwise = True
    example_wise = True

    pulled_by = ("acg-beta", 1)
    beta: float = setting(
        0.01, ge=0, alias="acg-beta", description="weight of the proximal term", allow_inf_nan=False
    )

    def correct_gradients(self) -> None:
        for name, w, gradient in self.gradients():
            gradient.add_(w - self.start[name], alpha=self.beta)
