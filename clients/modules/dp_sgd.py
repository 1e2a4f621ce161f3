"""DP-SGD: Abadi et al. 2016, "Deep Learning with Differential Privacy" (arXiv 1607.00133), algorithm 1.

Each example is in a batch independently with probability q = B / n. A step's gradient is
``(sum_i clip(g_i, C) + N(0, (z C)^2 I)) / B``, where the number n of examples, B and the number of steps are
public. What an objective adds to the gradient of f afterwards (FedProx, FedDyn, SCAFFOLD) is post-processing.

If all examples of a unit (a patient) are protected together, units are sampled, and g_i is the mean of a
unit's gradients: so C means the same, and all units have the same weight. Then n and B count units.
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

AT_A_TIME = 2**24  # numbers in the per-example gradients held at a time
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
        C, the bound on the L2 norm of one example's or unit's gradient over all trained parameters.
    noise : float
        z, the deviation of the noise on the sum over C.
    numbers : Numbers
        The randomness of batches and noise. It has to be secret, and unique to this client and round.
    """

    clip: float
    noise: float
    numbers: Numbers

    def batches(self, count: int, expected: int, steps: int) -> Iterator[NDArray[np.int64]]:
        """Yield the indices of each step's batch of ``count`` examples or units; it may be empty."""
        for _ in range(steps):
            yield np.flatnonzero(self.numbers.uniform(count) < expected / count)

    def backward(
        self,
        model: nn.Module,
        objective: Objective,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        expected: int,
        units: NDArray[np.int64] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Set the gradients of a batch. Return the mean loss and the outputs, (b, ...), without gradient.

        A gradient that is not finite counts 0, and so does that of a unit with one.

        Parameters
        ----------
        model : nn.Module
            Without layers that mix examples, such as BatchNorm.
        objective : Objective
            Its loss is that of one example at a time.
        inputs, targets : Tensor
            The batch, (b, ...) each.
        expected : int
            B, the expected number of examples in a batch, or of units.
        units : NDArray, optional
            The unit of each example, (b,), in order: the examples of a unit are adjacent. By default
            each example is protected by itself.
        """
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        size = sum(p.numel() for p in trained.values())
        sums = {name: torch.zeros_like(p) for name, p in trained.items()}
        losses, outputs = [], []
        means = None if units is None else _UnitMeans(units)
        parts = [torch.split(part, max(1, AT_A_TIME // size)) for part in (inputs, targets) if len(inputs)]
        for some, labels in zip(*parts, strict=True):
            gradients, (loss, output) = _single_gradients(model, objective, trained, some, labels)
            for name, clipped in self._clipped(means.add(gradients) if means else gradients).items():
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


class _UnitMeans:
    """Means of gradients by unit, over parts of a batch that may split a unit."""

    def __init__(self, units: NDArray[np.int64]) -> None:
        _, self.places, self.counts = np.unique(units, return_inverse=True, return_counts=True)
        self.done = 0
        self.held: dict[str, torch.Tensor] = {}
        """The sums so far of the unit that goes on in the next part."""

    def add(self, gradients: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Add the next part's gradients, (b, ...) each; return the mean gradients, (units, ...) each, of the
        units that end in it.
        """
        stop = self.done + len(next(iter(gradients.values())))
        places = self.places[self.done : stop]
        first, last = int(places[0]), int(places[-1])
        ended = last + int(stop == len(self.places) or self.places[stop] != last) - first
        index, counts = torch.from_numpy(places - first), torch.from_numpy(self.counts[first : first + ended])
        means, held = {}, {}
        for name, gradient in gradients.items():
            sums = gradient.new_zeros((last - first + 1, *gradient.shape[1:]))
            sums.index_add_(0, index.to(gradient.device), gradient)
            if self.held:
                sums[0] += self.held[name]
            sizes = counts.to(gradient).view(-1, *[1] * (gradient.dim() - 1))
            means[name] = sums[:ended] / sizes
            if ended <= last - first:
                held[name] = sums[-1]
        self.done, self.held = stop, held
        return means


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
