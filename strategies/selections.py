"""Which of the available clients train in a round."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Candidates:
    """The nodes that are available in a round, in partition order; a node's position is its place there.

    Parameters
    ----------
    server_round : int
        The round.
    partitions : NDArray
        Integers, shape (n,): the partition of each, or its node id where that is unknown.
    sizes : NDArray
        int64, shape (n,): the number of training examples of each, 0 where that is unknown.
    losses : Callable
        Asks the nodes at some positions, int64 of shape (k,), for the mean loss of the round's model on
        their training examples; returns float64 of shape (k,), NaN for a node that did not answer.
    """

    server_round: int
    partitions: NDArray[np.integer]
    sizes: Positions
    losses: Callable[[Positions], NDArray[np.float64]]

    def __len__(self) -> int:
        return len(self.partitions)


class Selection(ABC):
    """Base of the selections: implement `choose`.

    Parameters
    ----------
    argument : str
        The text after the name: ``20`` in ``power-of-choice:20``.

    Raises
    ------
    ValueError
        For an argument that is not allowed; the message says what is.
    """

    helps: ClassVar[tuple[str, ...]] = ()
    """What it is for: names of `core.methods.PURPOSES`, the main one first. Not inherited."""
    paper: ClassVar[str] = ""

    def __init__(self, argument: str = "") -> None:
        if argument:
            raise ValueError("nothing after its name")

    @abstractmethod
    def choose(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return the positions of the nodes that train, at most ``count``, each once, in any order.

        All random numbers must come from ``rng``, which depends on the seed and the round only.
        """


class Uniform(Selection):
    """Draw clients uniformly, without replacement."""

    helps = ("baseline",)

    def choose(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        return rng.choice(len(candidates), size=count, replace=False)


class BySize(Selection):
    """Draw clients one by one, with probability proportional to their training examples."""

    helps = ("baseline",)

    def choose(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        return drawn_by_size(candidates.sizes, count, rng)


def drawn_by_size(sizes: Positions, count: int, rng: np.random.Generator) -> Positions:
    """Draw ``count`` positions without replacement, with probabilities proportional to sizes; those of size
    0 come last."""
    some = np.flatnonzero(sizes)
    shares = sizes[some] / sizes.sum() if some.size else None
    chosen = rng.choice(some, min(count, some.size), replace=False, p=shares)
    none = rng.permutation(np.flatnonzero(sizes == 0))
    return np.concatenate([chosen, none])[:count].astype(np.int64)


class PowerOfChoice(Selection):
    """Ask D candidates, drawn by size, for their loss; those with the highest train (Cho et al. 2022).

    Algorithm 1 of arXiv 2010.01243, which calls it pow-d. With D at most the number of clients that train, it
    is `by-size`.
    """

    helps = ("few-rounds",)
    paper = "cho2022power"

    def __init__(self, argument: str = "") -> None:
        if not (argument.isdecimal() and int(argument) >= 1):
            raise ValueError("power-of-choice:D, with D >= 1 candidates")
        self.candidates = int(argument)

    def choose(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        drawn = drawn_by_size(candidates.sizes, max(count, self.candidates), rng)
        if len(drawn) <= count:
            return drawn
        losses = np.nan_to_num(candidates.losses(drawn), nan=-np.inf, posinf=np.inf)
        return drawn[np.argsort(-losses, kind="stable")[:count]]


SELECTIONS: dict[str, type[Selection]] = {
    "uniform": Uniform,
    "by-size": BySize,
    "power-of-choice": PowerOfChoice,
}
"""Built-in selections by name. To add one, import it above and enter it here."""

__all__ = ["SELECTIONS", "Candidates", "Selection"]
