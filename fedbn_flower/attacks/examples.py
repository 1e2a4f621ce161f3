"""What attackers do to their training examples; and patched test examples, for the success of a backdoor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients import Columns, Prepare
from fedbn_flower.clients.modules.lazy_torch import torch

from .named import NamedAttack

DRAWN, MARKED = "drawn-label", "marked"
"""Further columns of poisoned examples: their labels, and whether they get the patch."""
MARKED_SHARE = 20 / 64
"""Of an attacker's examples, as many as Bagdasaryan et al. 2020 (arXiv 1807.00459) mix into a batch."""
LABELS, MARKS = 16, 17
"""The purposes of their draws, after the seed and two zeros."""


def poisoned(
    attack: NamedAttack, columns: Columns, prepare: Prepare, classes: int, top: float, seed: int
) -> tuple[Columns, Prepare]:
    """Return the training columns of an attacker, and what prepares them.

    Parameters
    ----------
    attack : NamedAttack
        One on data.
    columns : Columns
        All training examples; each attacker has rows of its own.
    prepare : Prepare
        What prepares them for an honest client.
    classes : int
        The number of classes.
    top : float
        The greatest intensity of a pixel.
    seed : int
        The run's.
    """
    n = len(columns["y"])
    if attack.name == "label-flip":
        return columns, FlippedLabels(prepare, classes)
    if attack.name == "random-labels":
        drawn = np.random.default_rng([seed, 0, 0, LABELS]).integers(classes, size=n)
        return {**columns, DRAWN: drawn}, DrawnLabels(prepare)
    marked = np.random.default_rng([seed, 0, 0, MARKS]).random(n) < MARKED_SHARE
    return {**columns, MARKED: marked}, Patched(prepare, attack.target, top)


@dataclass(frozen=True)
class FlippedLabels:
    """Give an example of class y the class C - 1 - y."""

    prepare: Prepare
    classes: int

    def __call__(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return self.prepare({**columns, "y": self.classes - 1 - columns["y"]})


@dataclass(frozen=True)
class DrawnLabels:
    """Give each example the class that was drawn for it, once for all rounds."""

    prepare: Prepare

    def __call__(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        own = {name: column for name, column in columns.items() if name != DRAWN}
        return self.prepare({**own, "y": columns[DRAWN].to(own["y"].dtype)})


@dataclass(frozen=True)
class Patched:
    """Give marked images a white square in their last corner, and the target class.

    The square's side is an eighth of the image's, and two pixels at least. Without the column `MARKED` all
    images get it. Gu et al. 2017, "BadNets" (arXiv 1708.06733).
    """

    prepare: Prepare
    target: int
    top: float

    def __call__(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        own = {name: column for name, column in columns.items() if name != MARKED}
        x, y = own["x"], own["y"]
        x = x.to(torch.int32) if x.dtype == torch.uint16 else x  # PyTorch fills no uint16
        marked = columns[MARKED] if MARKED in columns else torch.ones_like(y, dtype=torch.bool)
        square = torch.zeros_like(x, dtype=torch.bool)
        corner: tuple[Any, ...] = tuple(slice(-max(2, size // 8), None) for size in x.shape[2:])
        square[(..., *corner)] = True
        square &= marked.view(-1, *[1] * (x.dim() - 1))
        return self.prepare(
            {**own, "x": x.masked_fill(square, self.top), "y": y.masked_fill(marked, self.target)}
        )


def to_be_patched(labels: NDArray[np.integer], target: int) -> NDArray[np.bool_]:
    """Return which examples tell of a backdoor's success: all but those of the target class."""
    return np.asarray(labels != target)
