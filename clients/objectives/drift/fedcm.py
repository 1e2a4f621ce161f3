"""FedCM: Xu et al. 2021, "Federated Learning with Client-level Momentum" (arXiv 2106.10874)."""

from typing import ClassVar

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import LOCAL_LENGTH, MOMENTUM

from ..base import LocalWork, Objective, Outcome


class FedCM(Objective):
    """The gradient is ``a grad f + (1 - a) d``, d the server's mean gradient of the last round.

    d is 0 in the first round, so its steps are shorter by a. The client reports ``local-length``, K lr.
    """

    purpose = "The clients' half of FedCM: a share of each step is the last round's global direction."
    helps = ("label-skew", "few-rounds")
    paper = "xu2021fedcm"

    requires: ClassVar = {"strategy": {"fedcm"}, "client-optimizer": {"sgd"}, "client-momentum": {0.0}}
    elementwise = True
    example_wise = True

    share: float = setting(
        0.1, gt=0, le=1, alias="cm-alpha", description="a, the share of the client's own gradient"
    )

    def begin(self) -> None:
        self.d = self.received_tensors(MOMENTUM)

    def correct_gradients(self) -> None:
        for name, _, gradient in self.gradients():
            gradient.mul_(self.share).add_(self.d[name], alpha=1 - self.share)

    def finish(self, work: LocalWork) -> Outcome:
        return Outcome(metrics={LOCAL_LENGTH: work.steps * work.learning_rate})
