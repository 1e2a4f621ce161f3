"""DP-SGD: Abadi et al. 2016, "Deep Learning with Differential Privacy" (arXiv 1607.00133), algorithm 1.

Each example is in a batch with probability q = B / n by itself. A step's gradient is
``(sum_i clip(g_i, C) + N(0, (z C)^2 I)) / B``, where the number n of examples, B and the number of steps are
public. What an objective adds to the gradient of f afterwards (FedProx, FedDyn, SCAFFOLD) is post-processing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from .batch_norm import batch_norm_layers
from .lazy_torch import nn, torch

if TYPE_CHECKING:
    from ..losses import Loss
    from ..objectives import Objective

AT_A_TIME = 2**24  # numbers of single gradients that are held
ROUNDING = 1 - 1e-6
"""Factor on the clipping norm, so that no rounding of float32 takes a gradient beyond it."""


class Numbers(Protocol):
    """A stream of random numbers."""

    def uniform(self, count: int) -> NDArray[np.float64]:
        """Return numbers from U[0, 1)."""

    def normal(self, count: int) -> NDArray[np.float64]:
        """Return numbers from N(0, 1)."""


@dataclass(frozen=True, eq=False)
class ExampleMechanism:
    """The mechanism of one client in one round.

    Parameters
    ----------
    clip : float
        C, the bound on the L2 norm of one example's gradient over all trained parameters.
    noise : float
        z, the deviation of the noise on the sum over C.
    numbers : Numbers
        Decides the batches and the noise. It has to be secret, of this client and round alone.
    """

    clip: float
    noise: float
    numbers: Numbers

    def batches(self, count: int, expected: int, steps: int) -> Iterator[NDArray[np.int64]]:
        """Yield the indices of each step's batch of ``count`` examples; it may be empty."""
        for _ in range(steps):
            yield np.flatnonzero(self.numbers.uniform(count) < expected / count)

    def backward(
        self,
        model: nn.Module,
        objective: Objective,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        expected: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Set the gradients of a batch. Return the mean loss and the outputs, (b, ...), without gradient.

        A gradient that is not finite counts 0.

        Parameters
        ----------
        model : nn.Module
            Without layers that mix examples, such as BatchNorm.
        objective : Objective
            Its loss is that of one example at a time.
        inputs, targets : Tensor
            The batch, (b, ...) each.
        expected : int
            B, the expected number of examples in a batch.
        """
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        size = sum(p.numel() for p in trained.values())
        sums = {name: torch.zeros_like(p) for name, p in trained.items()}
        losses, outputs = [], []
        parts = [torch.split(part, max(1, AT_A_TIME // size)) for part in (inputs, targets) if len(inputs)]
        for some, labels in zip(*parts, strict=True):
            gradients, (loss, output) = _single_gradients(model, objective, trained, some, labels)
            for name, clipped in self._clipped(gradients).items():
                sums[name] += clipped
            losses.append(loss)
            outputs.append(output)
        noise = torch.from_numpy(self.noise * self.clip * self.numbers.normal(size))
        shares = torch.split(noise, [p.numel() for p in trained.values()])
        for (name, p), added in zip(trained.items(), shares, strict=True):
            p.grad = (sums[name] + added.view_as(p).to(p)) / expected
        if not losses:
            return torch.zeros(()), torch.zeros(0)
        return torch.cat(losses).mean(), torch.cat(outputs)

    def _clipped(self, gradients: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the sums over examples of gradients, (b, ...) each, after clipping."""
        squares = [g.flatten(1).square().sum(1) for g in gradients.values()]
        norms = torch.stack(squares).sum(0).sqrt()
        finite = norms.isfinite()
        factors = (self.clip * ROUNDING / norms.clamp(min=1e-30)).clamp(max=1.0)[finite]
        return {name: torch.tensordot(factors, g[finite], 1) for name, g in gradients.items()}


def obstacle(model: nn.Module, objective: type[Objective], loss: type[Loss]) -> str:
    """Return why DP-SGD does not protect single examples of this training; "" if it does."""
    if layers := batch_norm_layers(model):
        return f"BatchNorm mixes examples, as in the layer {layers[0]!r}"
    if vars(objective).get("example_wise") is not True:
        return f"objective {objective.__name__} does not set `example_wise`"
    if vars(loss).get("alike") is not True:
        return f"loss {loss.__name__} uses more of the data than one example"
    return ""


def _single_gradients(
    model: nn.Module,
    objective: Objective,
    trained: Mapping[str, torch.Tensor],
    inputs: torch.Tensor,
    targets: torch.Tensor,
) -> tuple[dict[str, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Return each example's gradient by parameter, (b, ...) each, losses (b,) and outputs (b, ...)."""
    whole = nn.Module()
    whole.model = model
    whole.forward = partial(objective.loss, model)

    def loss_of(parameters: dict[str, torch.Tensor], one: torch.Tensor, target: torch.Tensor) -> object:
        named = {f"model.{name}": p for name, p in parameters.items()}
        loss, output = torch.func.functional_call(whole, named, (one.unsqueeze(0), target.unsqueeze(0)))
        return loss, (loss.detach(), output.detach().squeeze(0))

    gradient = torch.func.grad(loss_of, has_aux=True)
    each = torch.func.vmap(gradient, in_dims=(None, 0, 0), randomness="different")
    found: tuple[dict[str, torch.Tensor], tuple[torch.Tensor, torch.Tensor]] = each(
        {name: p.detach() for name, p in trained.items()}, inputs, targets
    )
    return found
