"""What a selection gets, and what it returns."""

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
        What follows the name: ``20`` in ``power-of-choice:20``.

    Raises
    ------
    ValueError
        For an argument that is not allowed; the message says what is.
    """

    helps: ClassVar[tuple[str, ...]] = ()
    """What it is for: names of `core.ground.purposes.PURPOSES`, the main one first. Not inherited."""
    paper: ClassVar[str] = ""

    def __init__(self, argument: str = "") -> None:
        if argument:
            raise ValueError("nothing after its name")

    @abstractmethod
    def choose(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return the positions of the nodes that train, at most ``count``, each once, in any order.

        All random numbers are to be from ``rng``: it depends on the seed and the round only.
        """
