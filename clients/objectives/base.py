"""The base of every local objective, and the plain one: the loss alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from numpy.typing import NDArray

from fedbn_flower.core.ground.settings import set_values

from ..examples import Examples
from ..losses import Loss
from ..memory import Arrays
from ..modules.lazy_torch import nn, torch
from ..modules.precision import in_float32
from ..problems import Classification, Problem
from ..update import Records


@dataclass(frozen=True)
class LocalWork:
    """A client's work in a round: the number of optimiser steps and the learning rate.

    ``momentum`` is that of SGD, None for another optimiser.
    """

    steps: int
    learning_rate: float
    momentum: float | None


@dataclass(frozen=True)
class Outcome:
    """The result of an objective after a round of local training.

    Parameters
    ----------
    memory : dict[str, NDArray], optional
        The client's new memory; None for none.
    records : Mapping[str, Mapping[str, NDArray]]
        Further records for the server. Parameters have the names of `Objective.parameters`.
    metrics : dict[str, float]
        Further metrics of the objective.
    sent : Mapping[str, NDArray]
        Values to send instead of the parameters; by default these are sent unchanged.
    """

    memory: dict[str, NDArray] | None = None
    records: Records = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    sent: Mapping[str, NDArray] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Local:
    """The parts of a client that an objective may use in addition to the parameters.

    Parameters
    ----------
    model : nn.Module
        The whole model with its local entries. It has the received x when the objective is created.
    examples : Examples
        The client's training examples.
    loss : Loss
        The training loss.
    constant : frozenset[str]
        The entries of the model that never change.
    initial : Mapping[str, NDArray]
        The entries of the run's initial model, the same for all clients.
    """

    model: nn.Module
    examples: Examples
    loss: Loss
    constant: frozenset[str] = frozenset()
    initial: Mapping[str, NDArray] = field(default_factory=dict)

    def entries(self) -> dict[str, torch.Tensor]:
        """Return copies of the current entries of the model, without the constant ones."""
        entries = self.model.state_dict().items()
        return {name: entry.clone() for name, entry in entries if name not in self.constant}


class Objective:
    """Empirical risk f: the mean of the loss. Subclasses add their own terms to its gradient.

    Each client gets a new object each round. Its settings are attributes.

    Parameters
    ----------
    parameters : Mapping[str, Tensor]
        The shared, trainable parameters with the values of the received model x; a tied one under its first
        name. Local entries such as BatchNorm are not among them.
    settings : Mapping[str, object]
        Values of the declared settings, by attribute; the others have their defaults.
    memory : Mapping[str, NDArray], optional
        `Outcome.memory` of the client's last committed round.
    received : Mapping[str, Mapping[str, NDArray]], optional
        Further records from the server: arrays by name, by record.
    problem : Problem, optional
        The learning problem; classification by default.
    local : Local, optional
        The client's model, examples and loss. Without it the problem's standard loss is used.
    """

    helps: ClassVar[tuple[str, ...]] = ()
    """What it is for: names of `core.methods.PURPOSES`, the main one first. Not inherited."""
    requires: ClassVar[Mapping[str, Collection[object]]] = {}
    """Requirements on the run configuration: key -> allowed values."""
    of_classes: ClassVar[bool] = False
    """Whether it needs (b, classes) outputs and class indices (b,)."""
    of_features: ClassVar[bool] = False
    """Whether it uses the input of the model's head."""
    pulled_by: ClassVar[tuple[str, int]] = ("", 1)
    """Flag of the weight c of a term ``c/2 ||w - x||^2``, and 1; or -1 where its value is 1 / c."""
    remembers: ClassVar[bool] = False
    """Whether `finish` returns a memory."""
    elementwise: ClassVar[bool] = False
    """Whether `correct_gradients` is elementwise and `loss` is the same function for all clients. Lockstep
    needs both: it stacks parameters and memories along a new first dimension. Not inherited: each class sets
    it for its own methods."""
    example_wise: ClassVar[bool] = False
    """Whether `loss` is a mean over examples, of each by itself, and all else uses the data only through the
    gradients. DP-SGD needs both. Not inherited: each class sets it for its own methods."""

    first_batch: Callable[[], AbstractContextManager[tuple[torch.Tensor, torch.Tensor]]]
    """In `first_answer`: yields inputs and targets of the batch of the round's first step, as that will have
    them. The model is then in training mode, and torch's generators are as they will be before its pass."""

    def __init__(
        self,
        parameters: Mapping[str, torch.Tensor],
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
        """The loss f of a batch's outputs and targets."""
        self.start = {name: in_float32(p.detach().clone()) for name, p in parameters.items()}
        set_values(self, settings)
        self.begin()

    @classmethod
    def misfit(cls, model: nn.Module) -> str:
        """Return why a model, in training mode, cannot be trained by it, in words; "" if it can."""
        return ""

    def begin(self) -> None:
        """Read the memory and the received records. It is called once, before training."""

    def first_answer(self) -> Records:
        """Return the answer to the server's question at x before a round's training, as `Outcome.records`."""
        return {}

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of a batch, and the model's output, shape (b, ...).

        ``reduction`` is as in PyTorch: ``mean`` for a scalar, ``none`` for the loss of each example, shape
        (b,). With ``none`` the batch may have examples of many clients, and ``model`` their stacked models.
        """
        output = model(inputs)
        return self.criterion(output, targets, reduction), output

    @property
    def client(self) -> Local:
        """The client's model, examples and loss.

        Raises
        ------
        ValueError
            When the objective was created without them.
        """
        if self.local is None:
            raise ValueError(f"{type(self).__name__} needs the client's model")
        return self.local

    def correct_gradients(self) -> None:
        """Add the gradient of the objective's terms in place to each of `gradients`."""

    def gradients(self) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
        """Yield (name, w, gradient) of every parameter that has a gradient."""
        for name, w in self.parameters.items():
            if w.grad is not None:
                yield name, w.detach(), w.grad

    def finish(self, work: LocalWork) -> Outcome:
        """Return the outcome after the round's work. The parameters now have the values x_i."""
        return Outcome()

    def tensors(self, arrays: Arrays | None) -> dict[str, torch.Tensor]:
        """Return arrays as tensors by parameter name; zeros for missing ones, such as once frozen ones."""
        given = arrays or {}
        return {
            name: torch.from_numpy(given[name]).to(x.device) if name in given else torch.zeros_like(x)
            for name, x in self.start.items()
        }

    def received_tensors(self, record: str) -> dict[str, torch.Tensor]:
        """Return a record from the server as tensors by parameter name.

        Raises
        ------
        ValueError
            When the record is missing, or lacks a parameter.
        """
        arrays = self.received.get(record)
        if arrays is None:
            raise ValueError(f"{type(self).__name__} needs the record {record!r}, which was not received")
        if missing := self.start.keys() - arrays.keys():
            raise ValueError(f"the record {record!r} lacks {min(missing)}")
        return self.tensors(arrays)


class Plain(Objective):
    """The loss f without further terms, whatever the optimiser."""

    purpose = "The loss alone: where to begin."
    helps = ("baseline",)

    elementwise = True
    example_wise = True


class Around(Objective):
    """Another objective, to which a subclass adds something before or after each batch's passes.

    It is used by `training.train_model` only: the round's outcome is the inner objective's `finish`.

    Parameters
    ----------
    inner : Objective
        The objective of the round.
    """

    def __init__(self, inner: Objective) -> None:
        self.inner = inner
        self.parameters, self.start = inner.parameters, inner.start
        self.problem, self.criterion = inner.problem, inner.criterion

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inner.loss(model, inputs, targets, reduction)

    def correct_gradients(self) -> None:
        self.inner.correct_gradients()
