"""PowerSGD: Vogels et al. 2019 (arXiv 1905.13727)."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .base import Codec, Codes, Layout

Matrix = NDArray[np.float64]
NEGLIGIBLE = 1e-10
"""What is left of a column without its part in the span of others is rounding, if it is less of it."""


class LowRank(Codec):
    """Each matrix as a product of two of rank ``lowrank:RANK``.

    Algorithm 1: ``P = orthogonalise(M Q)``, then ``Q = M^T P``; P Q^T stands for M. Departures: clients
    answer once, so each has a P of its own; Q begins at random in every round, so clients need no memory of
    it. A kernel is a matrix with a row for each output. Vectors, and matrices that P and Q do not make
    smaller, travel as they are.
    """

    paper = "vogels2019powersgd"
    needs_feedback = True

    def __init__(self, argument: str = "", feedback: bool | None = None) -> None:
        super().__init__("", feedback)
        if not (argument.isdecimal() and int(argument) >= 1):
            raise ValueError("lowrank:RANK, with a rank >= 1")
        self.rank = int(argument)

    def layout(self, size: int) -> Layout:
        coded = [(rows, columns) for _, rows, columns in self._parts(size) if columns]
        p, q = (sum(shape[axis] * self.rank for shape in coded) for axis in (0, 1))
        rest = sum(rows for _, rows, columns in self._parts(size) if not columns)
        return {name: ((length,), "float32") for name, length in (("p", p), ("q", q), ("rest", rest))}

    def encode(self, vector: NDArray[np.float32], rng: np.random.Generator) -> dict[str, NDArray]:
        codes: dict[str, list[NDArray]] = {"p": [], "q": [], "rest": []}
        for start, rows, columns in self._parts(vector.size):
            if not columns:
                codes["rest"].append(vector[start : start + rows])
                continue
            m = vector[start : start + rows * columns].reshape(rows, columns).astype(np.float64)
            q = rng.standard_normal((columns, self.rank))
            p = _orthogonal(np.einsum("ij,jk->ik", m, q)).astype(np.float32)
            codes["p"].append(p.reshape(-1))
            codes["q"].append(np.einsum("ij,ik->jk", m, p).astype(np.float32).reshape(-1))
        empty = np.zeros(0, np.float32)
        return {name: np.concatenate([empty, *arrays]) for name, arrays in codes.items()}

    def decode(self, codes: Codes, size: int) -> NDArray[np.float32]:
        vector = np.zeros(size, np.float32)
        at = dict.fromkeys(codes, 0)

        def next_of(name: str, length: int) -> NDArray[np.float32]:
            at[name] += length
            return codes[name][at[name] - length : at[name]]

        for start, rows, columns in self._parts(size):
            if not columns:
                vector[start : start + rows] = next_of("rest", rows)
                continue
            p, q = (next_of(name, n * self.rank).reshape(n, -1) for name, n in (("p", rows), ("q", columns)))
            vector[start : start + rows * columns] = np.einsum("ik,jk->ij", p, q).reshape(-1)
        return vector

    def _parts(self, size: int) -> Iterator[tuple[int, int, int]]:
        """Where each array begins, and its rows and columns; no columns of what travels as it is."""
        start = 0
        for shape in self.shapes or ((size,),):
            length = int(np.prod(shape))
            rows = shape[0] if shape else 1
            columns = length // rows if rows else 0
            smaller = self.rank * (rows + columns) < length
            yield (start, rows, columns) if smaller else (start, length, 0)
            start += length


def _orthogonal(matrix: Matrix) -> Matrix:
    """Return orthonormal columns of the same span, by Gram-Schmidt; a column that adds nothing to it is 0.

    Not by LAPACK, whose bits depend on the number of threads.
    """
    columns: list[Matrix] = []
    for column in matrix.T:
        rest = column.copy()
        for other in columns:
            rest -= (other * rest).sum() * other
        length = np.sqrt((rest**2).sum())
        negligible = length <= NEGLIGIBLE * np.sqrt((column**2).sum())
        columns.append(np.zeros_like(rest) if negligible else rest / length)
    return np.stack(columns, axis=1)
