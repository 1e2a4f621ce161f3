"""`Codec`, the base of every codec: a vector to the arrays that travel in its place, and back."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from copy import copy
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

Codes = Mapping[str, NDArray]
Layout = Mapping[str, tuple[tuple[int, ...], str]]
"""Shape and dtype of each array that travels, by name."""


class Codec(ABC):
    """Base of the codecs: implement `layout`, `encode` and `decode`.

    It encodes a vector, float32, of a length that both sides know.

    Parameters
    ----------
    argument : str
        What follows the name: ``0.05`` in ``topk:0.05``.
    feedback : bool, optional
        Whether what is lost is added to the next update; without it `needs_feedback`. An unbiased codec then
        scales what it sends, so that it is a contraction.

    Raises
    ------
    ValueError
        For an argument that is not allowed; the message says what is.
    """

    paper: ClassVar[str] = ""
    needs_feedback: ClassVar[bool] = False
    """Whether it is biased so that without feedback training may end elsewhere."""
    shapes: tuple[tuple[int, ...], ...] = ()
    """Of the arrays that make up the vector; empty if that is not known."""

    def __init__(self, argument: str = "", feedback: bool | None = None) -> None:
        self.feedback = self.needs_feedback if feedback is None else feedback
        if argument:
            raise ValueError("nothing after its name")

    def of_shapes(self, shapes: Iterable[tuple[int, ...]]) -> Self:
        """Return the codec of vectors that are arrays of these shapes, one after the other."""
        other = copy(self)
        other.shapes = tuple(shapes)
        return other

    @abstractmethod
    def layout(self, size: int) -> Layout:
        """Return the arrays that stand for a vector of this length."""

    @abstractmethod
    def encode(self, vector: NDArray[np.float32], rng: np.random.Generator) -> dict[str, NDArray]:
        """Return the arrays that travel, as `layout` says.

        All random numbers are to be from ``rng``: it depends on the seed, the client and the round only.
        """

    @abstractmethod
    def decode(self, codes: Codes, size: int) -> NDArray[np.float32]:
        """Return the vector; ValueError if the arrays stand for none."""


def count_of(argument: str, size: int) -> int:
    """Return how many of ``size`` values a share is: ``max(1, ceil(share * size))``, 0 of none.

    The share is the decimal number that is written: 0.07 of 100 is 7, though the float product is above 7.
    """
    return min(size, max(1, ceil(Fraction(Decimal(argument)) * size)))


def check_share(name: str, argument: str) -> str:
    """Return a share in (0, 1], as it was written; ValueError for another."""
    try:
        fits = 0 < float(argument) <= 1
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{name}:SHARE, with a share in (0, 1]")
    return argument
