"""The base of every local objective."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..examples import Examples
from ..losses import Loss
from ..memory import Arrays
from ..problems import Classification, Problem
from ..settings import set_values
from ..update import Records


@dataclass(frozen=True)
class LocalWork:
    """What a client did in a round: so many optimiser steps at this learning rate.

    ``momentum`` is that of SGD, None where the optimiser is another one.
    """

    steps: int
    learning_rate: float
    momentum: float | None = 0.0


@dataclass(frozen=True)
class Outcome:
    """What a round of local training leaves: the client's new memory, None for none; further records for the
    server, where a parameter is called as in `Objective.parameters`; and metrics of the objective's own."""

    memory: dict[str, NDArray] | None = None
    records: Records = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Local:
    """What an objective may use of its client beside the parameters.

    Parameters
    ----------
    model : nn.Module
        The whole model, its local entries included; it holds the received x when the objective is made.
    examples : Examples
        The client's training examples.
    loss : Loss
        What a wrong prediction costs.
    """

    model: nn.Module
    examples: Examples
    loss: Loss

    def entries(self) -> dict[str, Tensor]:
        """Copies of all entries of the model, as they are now."""
        return {name: entry.clone() for name, entry in self.model.state_dict().items()}


class Objective:
    """Empirical risk f: the mean of the loss. Subclasses add their own terms to its gradient.

    One object lives for one round of one client. Its settings are attributes, see `clients.settings`.

    Parameters
    ----------
    parameters : Mapping[str, Tensor]
        The shared, trainable parameters, holding the received model x; a tied one under its first name.
        Local BatchNorm takes no part.
    settings : Mapping[str, object]
        Values of the declared settings, by attribute; those that are missing have their defaults.
    memory : Mapping[str, NDArray], optional
        `Outcome.memory` of the client's last committed round.
    received : Mapping[str, Mapping[str, NDArray]], optional
        What the server sent beside the model: arrays by name, by record.
    problem : Problem, optional
        What is learnt; classification unless another is given.
    local : Local, optional
        The client's model, examples and loss; without it the loss is the problem's.
    """

    requires: ClassVar[Mapping[str, Collection[object]]] = {}
    """What the run's configuration must be for this objective: allowed values by key."""
    of_classes: ClassVar[bool] = False
    """Whether it is about (b, classes) outputs and class numbers (b,) only."""
    of_features: ClassVar[bool] = False
    """Whether it is about what goes into the model's head."""
    remembers: ClassVar[bool] = False
    """Whether `finish` leaves a memory."""
    elementwise: ClassVar[bool] = False
    """Whether `correct_gradients` treats every entry by itself, and `loss` needs nothing of the client's own.
    Then many can train in lockstep, their parameters and memories stacked along a new first dimension. It is
    not inherited: a class says it of its own methods."""

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        settings: Mapping[str, Any],
        memory: Arrays | None = None,
        received: Records | None = None,
        problem: Problem | None = None,
        local: Local | None = None,
    ) -> None:
        self.parameters = parameters
        self.settings = settings
        self.memory = memory
        self.received = received or {}
        self.problem = problem or Classification()
        self.local = local
        self.criterion = local.loss if local else Loss(self.problem)
        """f of a batch's outputs and targets."""
        self.start = {name: p.detach().clone() for name, p in parameters.items()}
        set_values(self, settings)
        self.begin()

    def begin(self) -> None:
        """Read what the objective needs of the memory and of the records that came."""

    def loss(
        self, model: nn.Module, inputs: Tensor, targets: Tensor, reduction: str = "mean"
    ) -> tuple[Tensor, Tensor]:
        """The loss of a batch, and the model's output, shape (b, ...).

        ``reduction`` is as in PyTorch: ``mean`` for a scalar, ``none`` for the loss of each example, shape
        (b,). With ``none`` the examples may be many clients', and the model all of theirs.
        """
        output = model(inputs)
        return self.criterion(output, targets, reduction), output

    @property
    def client(self) -> Local:
        """The client's model, examples and loss.

        Raises
        ------
        ValueError
            When the objective was made without them.
        """
        if self.local is None:
            raise ValueError(f"{type(self).__name__} needs the client's model")
        return self.local

    def correct_gradients(self) -> None:
        """Add the gradient of the objective's own terms, in place, to each of `gradients`."""

    def gradients(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """(name, w, gradient) of every parameter that has a gradient; what the loss does not reach stays."""
        for name, w in self.parameters.items():
            if w.grad is not None:
                yield name, w.detach(), w.grad

    def finish(self, work: LocalWork) -> Outcome:
        """What is left after the round's work; the parameters hold x_i."""
        return Outcome()

    def tensors(self, arrays: Arrays | None) -> dict[str, Tensor]:
        """Arrays as tensors by parameter name; zeros where there are none yet."""
        if arrays is None:
            return {name: torch.zeros_like(x) for name, x in self.start.items()}
        return {name: torch.from_numpy(arrays[name]).to(x.device) for name, x in self.start.items()}

    def received_tensors(self, record: str) -> dict[str, Tensor]:
        """A record that the server sent, as tensors by parameter name.

        Raises
        ------
        ValueError
            When it did not come, or lacks a parameter.
        """
        arrays = self.received.get(record)
        if arrays is None:
            raise ValueError(f"{type(self).__name__} needs the record {record!r}, which did not come")
        if missing := self.start.keys() - arrays.keys():
            raise ValueError(f"the record {record!r} came without {min(missing)}")
        return self.tensors(arrays)
