"""The base of every problem."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn


class Problem:
    """What is learnt: the loss, and how a prediction is scored.

    An example may hold several predictions (the characters of a text); a figure is a mean over predictions.
    """

    metrics: ClassVar[tuple[str, ...]] = ("loss",)
    """The names of all figures of held-out examples, the loss first."""
    compared_by: ClassVar[str] = "loss"
    """The figure by which runs are compared."""
    higher_is_better: ClassVar[frozenset[str]] = frozenset()
    """Those of the figures that are to be high; the others are to be low."""
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {}
    """The least and the greatest that figures of held-out examples can be, by name; the others are numbers
    from 0 on."""

    def loss(self, output: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
        """The loss of a batch, from the model's output, (b, ...), and the targets, (b, ...).

        ``reduction`` is as in PyTorch: ``mean`` and ``sum`` over the batch's predictions give a scalar;
        ``none`` the mean over each example's, shape (b,).
        """
        raise NotImplementedError

    def scores(self, output: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Figures beside the loss, by name: for each example the sum over its predictions, shape (b,)."""
        return {}

    def predictions(self, targets: Tensor) -> Tensor:
        """How many predictions each example holds, float32 (b,)."""
        return targets.new_ones(len(targets), dtype=torch.float32)

    def derived(self, means: Mapping[str, float]) -> dict[str, float]:
        """Figures that are functions of the mean loss and scores, by name."""
        return {}

    def by_class(self, output: Tensor, targets: Tensor, classes: int) -> dict[str, Tensor]:
        """Counts of a batch by class, each int64 (classes,): ``class-hits`` and ``class-examples``. Empty
        where an example is not of one of several classes."""
        return {}

    def of_model(self, model: nn.Module) -> dict[str, float]:
        """Figures of the model itself, whatever the examples, by name."""
        return {}

    def misfit(self, model: nn.Module, inputs: Tensor, output: object, outputs: int) -> str:
        """What the model should be, if it is not so; empty where it fits.

        ``output`` is what it gives for two inputs; ``outputs`` how many numbers a prediction needs: classes,
        values, or characters.
        """
        raise NotImplementedError


def shape_of(output: object) -> tuple[int, ...]:
    """The shape of a tensor; nothing for anything else."""
    return tuple(output.shape) if isinstance(output, Tensor) else ()


def one_that_gives(wanted: tuple[int, ...], output: object) -> str:
    """In words: a model whose output for two examples has another shape than this one."""
    found = shape_of(output) or f"a {type(output).__name__}"
    return f"one whose output for two examples has the shape {wanted}, not {found}"
