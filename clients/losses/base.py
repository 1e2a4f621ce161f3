"""The base of every loss."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..examples import Examples
from ..problems import Classification, Problem
from ..settings import set_values


class Loss:
    """The loss that is usual for what is learnt.

    Subclasses are losses of classification; held-out examples are always scored by the usual one. One object
    lives for one round of one client; its settings are attributes, see `clients.settings`.

    Parameters
    ----------
    problem : Problem
        What is learnt.
    examples : Examples, optional
        The client's training examples.
    settings : Mapping[str, object]
        Values of the declared settings, by attribute; those that are missing have their defaults.
    """

    requires: ClassVar[Mapping[str, Collection[object]]] = {}
    """What the run's configuration must be for this loss: allowed values by key."""
    of_classes: ClassVar[bool] = False
    """Whether it is of (b, classes) outputs and class numbers (b,) only."""
    alike: ClassVar[bool] = True
    """Whether it needs nothing of the client's own. Then many clients can train in lockstep. It is not
    inherited: a class says it of its own method."""

    def __init__(
        self,
        problem: Problem | None = None,
        examples: Examples | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.problem = problem or Classification()
        self.examples = examples
        self._counts: Tensor | None = None
        self.confusion: Tensor | None = None
        """The client's running confusion of classes, (classes, classes), where its objective keeps one."""
        set_values(self, settings or {})

    def __call__(self, output: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
        """The loss of a batch, from the model's output, (b, ...), and the targets, (b, ...).

        ``reduction`` is as in PyTorch: ``mean`` for a scalar, ``none`` for the loss of each example, (b,).
        """
        return self.problem.loss(output, targets, reduction)

    def class_counts(self, output: Tensor) -> Tensor:
        """How many training examples the client has of each class, float (classes,), as the output's columns.

        Raises
        ------
        ValueError
            When the examples are not known.
        """
        if self.examples is None:
            raise ValueError(f"{type(self).__name__} needs the client's examples")
        if self._counts is None:
            self._counts = torch.bincount(self.examples.targets, minlength=output.shape[1]).to(output)
        return self._counts

    def frequencies(self, output: Tensor) -> Tensor:
        """The classes' shares of the client's training examples, (classes,); an absent class counts as one
        example, so that its logarithm is a number."""
        counts = self.class_counts(output)
        return counts.clamp(min=1) / counts.sum()


def reduced(losses: Tensor, reduction: str) -> Tensor:
    """Losses of examples, (b,), as ``reduction`` says."""
    return losses.mean() if reduction == "mean" else losses
