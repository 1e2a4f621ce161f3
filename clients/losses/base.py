"""The base of every loss."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from ..examples import Examples
from ..modules.lazy_torch import torch
from ..problems import Classification, Problem
from ..settings import set_values


class Loss:
    """The problem's standard loss; the base of all training losses.

    Most subclasses are losses of classification. Held-out examples are always evaluated by the standard loss.
    Each client gets a new object each round. Its settings are attributes.

    Parameters
    ----------
    problem : Problem
        The learning problem.
    examples : Examples, optional
        The client's training examples.
    settings : Mapping[str, object]
        Values of the declared settings, by attribute; the others have their defaults.
    """

    helps: ClassVar[tuple[str, ...]] = ("baseline",)
    """What it is for: names of `core.methods.PURPOSES`, the main one first. Not inherited."""
    requires: ClassVar[Mapping[str, Collection[object]]] = {}
    """Requirements on the run configuration: key -> allowed values."""
    of_classes: ClassVar[bool] = False
    """Whether it needs (b, classes) outputs and class indices (b,)."""
    of_masks: ClassVar[bool] = False
    """Whether it needs the outputs and targets of `problems.Segmentation`."""
    alike: ClassVar[bool] = True
    """Whether it is the same function for all clients, as lockstep needs. Not inherited: each class sets it
    for its own method."""

    def __init__(
        self,
        problem: Problem | None = None,
        examples: Examples | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.problem = problem or Classification()
        self.examples = examples
        self._counts: torch.Tensor | None = None
        self.confusion: torch.Tensor | None = None
        """The client's running confusion matrix, (classes, classes), if its objective keeps one."""
        set_values(self, settings or {})

    def __call__(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        """Return the loss of a batch, from the model's output, (b, ...), and the targets, (b, ...).

        ``reduction`` is as in PyTorch: ``mean`` for a scalar, ``none`` for the loss of each example, (b,).
        """
        return self.problem.loss(output, targets, reduction)

    @property
    def training_targets(self) -> torch.Tensor:
        """The targets of the client's training examples, (n, ...).

        Raises
        ------
        ValueError
            Without the client's examples.
        """
        if self.examples is None:
            raise ValueError(f"{type(self).__name__} needs the client's examples")
        return self.examples.targets

    def class_counts(self, output: torch.Tensor) -> torch.Tensor:
        """Return the number of training examples of each class, float (classes,), as the output's columns.

        Raises
        ------
        ValueError
            Without the client's examples.
        """
        if self._counts is None:
            self._counts = torch.bincount(self.training_targets, minlength=output.shape[1]).to(output)
        return self._counts

    def frequencies(self, output: torch.Tensor) -> torch.Tensor:
        """Return the classes' shares of the client's training examples, (classes,).

        An absent class counts as one example, so that its logarithm is finite.
        """
        counts = self.class_counts(output)
        return counts.clamp(min=1) / counts.sum()


def reduced(losses: torch.Tensor, reduction: str) -> torch.Tensor:
    """Reduce the losses of examples, (b,), by ``reduction``."""
    return losses.mean() if reduction == "mean" else losses
