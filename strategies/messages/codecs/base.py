"""`Codec`, the base of every codec: a vector to the arrays that travel in its place, and back."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

Codes = Mapping[str, NDArray]
Layout = Mapping[str, tuple[tuple[int, ...], str]]
"""Shape and dtype of each array that travels, by name."""


class Codec:
    """Encodes a vector, float32, of a length that both sides know.

    Parameters
    ----------
    argument : str
        What follows the colon in ``NAME:ARGUMENT``; ValueError if it is not allowed.
    feedback : bool
        Whether what is lost is added to the next update. An unbiased codec then scales what it sends, so that
        it is a contraction.
    """

    needs_feedback: ClassVar[bool] = False
    """Whether it is biased so that without feedback training may end elsewhere."""

    def __init__(self, argument: str, feedback: bool) -> None:
        self.feedback = feedback
        if argument:
            raise ValueError("takes no argument")

    def layout(self, size: int) -> Layout:
        """Return the arrays that stand for a vector of this length."""
        raise NotImplementedError

    def encode(self, vector: NDArray[np.float32], rng: np.random.Generator) -> dict[str, NDArray]:
        """Return the arrays that travel, as `layout` says."""
        raise NotImplementedError

    def decode(self, codes: Codes, size: int) -> NDArray[np.float32]:
        """Return the vector; ValueError if the arrays stand for none."""
        raise NotImplementedError


def count_of(argument: str, size: int) -> int:
    """Return how many of ``size`` values a share is: ``max(1, ceil(share * size))``, 0 of none."""
    return min(size, max(1, int(np.ceil(float(argument) * size))))


def check_share(argument: str) -> str:
    """Return a share in (0, 1], as it was written; ValueError for another."""
    if not 0 < float(argument) <= 1:
        raise ValueError("not a share in (0, 1]")
    return argument
