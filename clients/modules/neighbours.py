"""A model with a k-nearest-neighbour correction by stored examples."""

import torch
from torch import nn
from torch.nn import functional

from ..examples import Examples
from .head import features
from .rng import seeded


class Neighbours(nn.Module):
    """A model with a store of features; its output is the logarithm of the mixed probabilities.

    Parameters
    ----------
    model : nn.Module
        The model, with a head.
    examples : Examples
        The stored examples, which vote.
    batch_size : int
        How many examples are stored at a time.
    share : float
        The share of the votes in a prediction, in [0, 1).
    k : int
        The number of neighbours that vote.
    scale : float
        The distance at which the weight of a vote falls to 1/e.
    """

    def __init__(
        self, model: nn.Module, examples: Examples, batch_size: int, share: float, k: int, scale: float
    ) -> None:
        super().__init__()
        self.model, self.scale = model.eval(), scale
        self.weights = torch.tensor([share, 1 - share]).log().tolist()
        with torch.no_grad(), seeded(0):
            loaded = examples.load(examples.batches(batch_size))
            self.stored = torch.cat([features(model, inputs)[0] for inputs, _ in loaded])
        self.targets = examples.targets.long()
        self.k = min(k, len(self.stored))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        z, output = features(self.model, inputs)
        # By products, an example's distance to itself would be rounding.
        all_distances = torch.cdist(z, self.stored, compute_mode="donot_use_mm_for_euclid_dist")
        distances, nearest = all_distances.topk(self.k, largest=False)
        votes = functional.softmax(-distances / self.scale, 1)
        shares = torch.zeros_like(output).scatter_add_(1, self.targets[nearest], votes.to(output))
        voted, predicted = self.weights
        return torch.logaddexp(voted + shares.log(), predicted + output.log_softmax(1))
