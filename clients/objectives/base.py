"""The base of every local objective, and the plain one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from flwr.common import Scalar
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

Arrays = Mapping[str, NDArray]


@dataclass(frozen=True)
class Outcome:
    """What a round of local training leaves: the client's new memory, and what goes to the server beside
    the model; both by parameter name, None for nothing."""

    memory: dict[str, NDArray] | None = None
    control: dict[str, NDArray] | None = None


class Objective:
    """Plain empirical risk f: the mean cross-entropy. Subclasses add their own terms to its gradient.

    One object lives for one round of one client.

    Parameters
    ----------
    parameters : Mapping[str, Tensor]
        The shared, trainable parameters, holding the received model x. Local BatchNorm takes no part.
    settings : Mapping[str, Scalar]
        The train message's config: ``mu``, ``alpha``, ...
    memory : Mapping[str, NDArray], optional
        `Outcome.memory` of the client's last committed round.
    control : Mapping[str, NDArray], optional
        What the server sent beside the model.
    """

    partner: ClassVar[str | None] = None
    """The strategy that this objective needs, if it is half of a pair."""
    remembers: ClassVar[bool] = False
    """Whether `finish` leaves a memory."""
    elementwise: ClassVar[bool] = True
    """Whether `correct_gradients` treats every entry by itself, and `loss` needs nothing of the client's own.
    Then many can train in lockstep, their parameters and memories stacked along a new first dimension."""

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        settings: Mapping[str, Scalar],
        memory: Arrays | None = None,
        control: Arrays | None = None,
    ) -> None:
        self.parameters = parameters
        self.settings = settings
        self.memory = memory
        self.control = control
        self.start = {name: p.detach().clone() for name, p in parameters.items()}
        self.begin()

    def begin(self) -> None:
        """Read the settings, the memory and the control that the objective needs."""

    def loss(
        self, model: nn.Module, images: Tensor, labels: Tensor, reduction: str = "mean"
    ) -> tuple[Tensor, Tensor]:
        """The loss of a batch, and the model's output, shape (b, classes).

        ``reduction`` is as in PyTorch: ``mean`` for a scalar, ``none`` for the loss of each example, shape
        (b,). With ``none`` the examples may be many clients', and the model all of theirs.
        """
        output = model(images)
        return functional.cross_entropy(output, labels, reduction=reduction), output

    def correct_gradients(self) -> None:
        """Add the gradient of the objective's own terms, in place, to each of `gradients`."""

    def gradients(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """(name, w, gradient) of every parameter that has a gradient; what the loss does not reach stays."""
        for name, w in self.parameters.items():
            if w.grad is not None:
                yield name, w.detach(), w.grad

    def finish(self, steps: int, learning_rate: float) -> Outcome:
        """What is left after ``steps`` optimiser steps; the parameters hold x_i."""
        return Outcome()

    def tensors(self, arrays: Arrays | None) -> dict[str, Tensor]:
        """Arrays as tensors by parameter name; zeros where there are none yet."""
        if arrays is None:
            return {name: torch.zeros_like(x) for name, x in self.start.items()}
        return {name: torch.from_numpy(arrays[name]).to(x.device) for name, x in self.start.items()}
