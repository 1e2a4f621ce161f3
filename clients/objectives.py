"""What a client minimises locally."""

from torch import Tensor, nn
from torch.nn import functional


class Objective:
    """Plain empirical risk: the cross-entropy of the model's output. Subclasses add their own terms."""

    def loss(self, model: nn.Module, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of one batch, a scalar, and the model's output, shape (b, classes)."""
        output = model(images)
        return functional.cross_entropy(output, labels), output


OBJECTIVES: dict[str, type[Objective]] = {"sgd": Objective}
