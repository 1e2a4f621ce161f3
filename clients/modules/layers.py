"""Modules of PyTorch; whoever imports them waits for it.

The layer of Hybrid BatchNorm: Chen et al. 2025 (arXiv 2505.21877), equations 8 and 9.
A model with a k-nearest-neighbour correction by stored examples.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..examples import Examples
from .batch_norm import follow
from .head import features
from .rng import seeded


class HybridBatchNorm(nn.BatchNorm1d):
    """BatchNorm that mixes running and batch statistics in training, by a learnt factor per channel.

    ``mean = (1 - a) running_mean + a batch_mean`` and the same of the variances, ``a = sigmoid(factor)``, 1/2
    at first. The gradient flows through the batch statistics. In evaluation it is BatchNorm. Inputs are (b,
    C) or (b, C, ...); with a single value per channel only the running variance is used.

    Running statistics follow the batches as in BatchNorm; with ``momentum`` 0 they stay.
    """

    def __init__(self, channels: int, eps: float, momentum: float | None, affine: bool) -> None:
        super().__init__(channels, eps, momentum, affine)
        self.factor = nn.Parameter(torch.zeros(channels))

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected inputs (b, C, ...), got {input.dim()} dimensions")

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)
        assert self.running_mean is not None
        assert self.running_var is not None
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        variance, mean = torch.var_mean(x, dim=[0, *range(2, x.dim())], correction=0)
        share = self.factor.sigmoid()
        running = self.running_mean.clone(), self.running_var.clone()  # the gradient of factor needs them
        mixed = torch.lerp(running[0], mean, share), torch.lerp(running[1], variance, share)
        follow(self, mean.detach(), variance.detach(), x.numel() // x.shape[1])
        shape = (-1, *[1] * (x.dim() - 2))
        y = (x - mixed[0].view(shape)) * torch.rsqrt(mixed[1] + self.eps).view(shape)
        if self.affine:
            y = y * self.weight.view(shape) + self.bias.view(shape)
        return y.to(input.dtype)


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
