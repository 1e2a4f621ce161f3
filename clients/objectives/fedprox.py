"""FedProx: Li et al. 2020, "Federated Optimization in Heterogeneous Networks" (arXiv 1812.06127)."""

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import LOCAL_NORM

from .base import LocalWork, Objective, Outcome


class FedProx(Objective):
    """``f + mu/2 ||w - x||^2`` (equation 2, squared norm). It adds ``mu (w - x)`` to the gradient.

    With SGD it reports ``local-norm``, the norm of FedNova's accumulation vector (Wang et al. 2020,
    arXiv 2007.07481, section 4). The proximal term decays the weight of earlier gradients in it.
    """

    purpose = "Keeps a client near the global model: label skew, unequal work."
    helps = ("unequal-work", "label-skew")
    paper = "li2020fedprox"

    pulled_by = ("mu", 1)
    mu: float = setting(0.01, ge=0, description="weight of the proximal term", allow_inf_nan=False)

    elementwise = True
    example_wise = True

    def correct_gradients(self) -> None:
        for name, w, gradient in self.gradients():
            gradient.add_(w - self.start[name], alpha=self.mu)

    def finish(self, work: LocalWork) -> Outcome:
        if work.momentum is None:
            return Outcome()
        return Outcome(
            metrics={LOCAL_NORM: local_norm(work.steps, work.momentum, work.learning_rate * self.mu)}
        )


def local_norm(steps: int, momentum: float, pull: float) -> float:
    """Return how far constant unit gradients move the model, over the learning rate. ``pull`` is lr mu.

    ``v <- momentum v + 1 - pull u; u <- u + v`` from 0: ``(1 - (1 - pull)^K) / pull`` without momentum.
    """
    u = v = 0.0
    for _ in range(steps):
        v = momentum * v + 1.0 - pull * u
        u += v
    return u
