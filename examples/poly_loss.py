"""A loss of one's own: PolyLoss (Leng et al. 2022, arXiv 2204.12511, equation 5).

python run_sim.py --loss examples/poly_loss.py:Poly --epsilon 2.5
flwr run . --run-config "loss='examples/poly_loss.py:Poly' settings='epsilon=2.5'"
"""

from torch import Tensor
from torch.nn.functional import cross_entropy

from fedbn_flower.clients import Loss, setting


class Poly(Loss):
    """``-log p_y + epsilon (1 - p_y)``: what the model is sure of still counts."""

    of_classes = True
    """It is refused for numbers and text."""
    alike = True
    """It needs nothing of the client's own, so that many clients can train in lockstep."""

    epsilon: float = setting(1.0, ge=-1, description="weight of 1 - p_y")

    def __call__(self, output: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
        usual = cross_entropy(output, targets, reduction="none")
        loss = usual + self.epsilon * (1 - (-usual).exp())
        return loss.mean() if reduction == "mean" else loss
