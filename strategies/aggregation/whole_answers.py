"""Robust means that compare whole answers by their distances: Krum and its kin, and clipped or weighed ones.

Distances are between the differences of the stepped parameters. All come from one product of the matrix of
the differences with itself, summed in float64: ``|D_i - D_j|^2 = K_ii + K_jj - 2 K_ij`` with ``K = D D^T``.
A point ``sum_i c_i D_i`` is kept as its coefficients c, so iterations read no answer again.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
from flwr.serverapp.exception import AggregationError
from numpy.typing import NDArray

from .means import TrimmedMean
from .rule_state import RuleState
from .vectors import BLOCK, Vector, blocks

CENTRE = "clip-centre"
"""The vector of a rule's state from which `CenteredClip` starts."""

ROUNDING = 2e-7
"""How far float32 products may be rounded, of the squares of the norms."""


class WholeAnswers(TrimmedMean):
    """A mean of differences to a reference that looks at whole answers. All are kept until it is computed.

    Parameters
    ----------
    reference : Sequence[NDArray]
        The flat entries of the vector x that is subtracted.
    dtype : np.dtype
        The floating dtype of the result.
    """

    def __init__(self, reference: Sequence[NDArray], dtype: np.dtype) -> None:
        super().__init__(reference, dtype, trim=0.5)

    def mean_of(self, state: RuleState | None) -> Vector:
        """Return the mean of the stepped parameters. It may use and change the rule's state.

        There is no state where no model was sent: differences are then whole models.
        """
        return self.mean()

    def beside(self, stepped: "WholeAnswers") -> Vector:
        """Return the mean of something else of the same answers, given that of the stepped parameters."""
        return self.mean()

    def products(self, *others: Vector) -> NDArray[np.float64]:
        """Return ``D D^T``, float64 (n, n), over the answers' differences and then these vectors.

        A constant that is not finite, such as an attention mask, counts as 0.
        """
        n = len(self.answers) + len(others)
        total = np.zeros((n, n))
        rows = np.empty((n, 0))
        for part, differences in self._blocks(range(len(self.answers))):
            if rows.shape[1] != part.stop - part.start:
                rows = np.empty((n, part.stop - part.start))
            for i, difference in enumerate((*differences, *(other[part] for other in others))):
                rows[i] = difference
            with np.errstate(invalid="ignore"):
                product = rows @ rows.T
            if not np.isfinite(product).all():
                rows[~np.isfinite(rows)] = 0
                product = rows @ rows.T
            total += product
        return total

    def combined(self, coefficients: NDArray[np.float64], *others: Vector) -> Vector:
        """Return ``sum_i c_i D_i`` over the answers and then these vectors; c_i = 0 leaves an answer out."""
        n = len(self.answers)
        used = [i for i in range(n) if coefficients[i]]
        total = np.zeros(sum(entry.size for entry in self.reference), self.dtype)
        scales = coefficients.astype(self.dtype)
        for part, differences in self._blocks(used):
            for i, difference in zip(used, differences, strict=True):
                total[part] += scales[i] * difference
            for scale, other in zip(scales[n:], others, strict=True):
                total[part] += scale * other[part]
        return total

    def _blocks(self, chosen: Sequence[int]) -> Iterator[tuple[slice, Iterator[Vector]]]:
        """Yield the chosen answers' differences, block by block."""
        for part in blocks(sum(entry.size for entry in self.reference), 16):
            yield part, self.differences(part, chosen)


class Krum(WholeAnswers):
    """The mean of the m answers whose n - f - 2 nearest others are nearest, by squared distances.

    Blanchard et al. 2017, "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent" (arXiv
    1703.02757), Section 4; m = 1 is Krum, more are Multi-Krum. Clients are weighted equally. Everything else
    that an answer has counts if its stepped parameters were chosen.
    """

    purpose = "The answer that is nearest to others (krum:F), or the mean of the M that are (multi-krum:F,M)."
    helps = ("hostile-clients",)
    paper: ClassVar = "blanchard2017krum"

    def __init__(self, reference: Sequence[NDArray], dtype: np.dtype, f: int, m: int = 1) -> None:
        super().__init__(reference, dtype)
        self.f, self.m = f, m
        self._chosen: list[int] = []

    @staticmethod
    def least(f: int, m: int = 1) -> int:
        """Return how many answers it needs: 2 f + 3, and that f may be left out."""
        return max(2 * f + 3, f + m)

    def chosen(self) -> list[int]:
        """Return the positions of the chosen answers, in order."""
        if not self._chosen:
            self._chosen = sorted(self.choose())
        return self._chosen

    def choose(self) -> list[int]:
        """Return the positions of the answers to take.

        Products in float32, summed in float64 by block, decide. Where two answers are so near that rounding
        could, products in float64 do.
        """
        products = self.quick_products()
        found = surely_best(squared_distances(products), self.f, self.m, np.diag(products))
        return found or best(squared_distances(self.products()), self.f, self.m)

    def quick_products(self) -> NDArray[np.float64]:
        """Return `products` of the answers, each block's in float32."""
        n, length = len(self.answers), BLOCK // 32
        total, rows = np.zeros((n, n)), np.empty((n, length), np.float32)
        with np.errstate(invalid="ignore", over="ignore"):
            for number, reference in enumerate(self.reference):
                for part in blocks(reference.size, 32):
                    block = rows[:, : part.stop - part.start]
                    for i, (entries, factor, own) in enumerate(self.answers):
                        np.subtract(entries[number][part], own[number][part], block[i], casting="same_kind")
                        if factor != 1:
                            block[i] *= np.float32(factor)
                    product = block @ block.T
                    if not np.isfinite(product).all():
                        block[~np.isfinite(block)] = 0
                        product = block @ block.T
                    total += product
        return total

    def mean(self) -> Vector:
        return self.mean_over(self.chosen())

    def beside(self, stepped: WholeAnswers) -> Vector:
        assert isinstance(stepped, Krum)
        if len(self.answers) != len(stepped.answers):
            raise AggregationError("with this mean, every answer has to have the same further vectors")
        return self.mean_over(stepped.chosen())

    def mean_over(self, chosen: Sequence[int]) -> Vector:
        """Return the mean of the chosen answers."""
        coefficients = np.zeros(len(self.answers))
        coefficients[chosen] = 1 / len(chosen)
        return self.combined(coefficients)


class Bulyan(Krum):
    """Of n - 2 f answers that Krum chooses one by one: by coordinate, the mean of the n - 4 f middle values.

    El Mhamdi et al. 2018, "The Hidden Vulnerability of Distributed Learning in Byzantium" (arXiv 1802.07927),
    Section 4: the middle are the n - 4 f values nearest to the median. Krum's score of the last answers is by
    one neighbour at least, where n - f - 2 is none.
    """

    purpose = "Krum's choices, and of these a trimmed mean: withstands lies in single coordinates, too."
    helps = ("hostile-clients",)
    paper: ClassVar = "elmhamdi2018bulyan"

    @staticmethod
    def least(f: int, m: int = 1) -> int:
        """Return how many answers it needs: 4 f + 3."""
        return 4 * f + 3

    def choose(self) -> list[int]:
        distances = squared_distances(self.products())
        left, chosen = list(range(len(distances))), []
        for _ in range(len(distances) - 2 * self.f):
            chosen.append(left.pop(best(distances[np.ix_(left, left)], self.f, 1)[0]))
        return chosen

    def mean_over(self, chosen: Sequence[int]) -> Vector:
        kept = len(chosen) - 2 * self.f
        mean = np.empty(sum(entry.size for entry in self.reference), self.dtype)
        for part, differences in self._blocks(chosen):
            with np.errstate(invalid="ignore"):  # constants that are not finite, such as attention masks
                values = np.sort(np.stack(list(differences), axis=1), axis=1)
                mean[part] = middle_mean(values, kept)
        return mean


class GeometricMedian(WholeAnswers):
    """``argmin_v sum_i w_i |D_i - v|`` by ten steps of the smoothed Weiszfeld algorithm, nu 1e-6.

    Pillutla et al. 2022, "Robust Aggregation for Federated Learning" (arXiv 1912.13445), Algorithm 2:
    ``b_i = w_i / max(nu, |D_i - v|); v = sum_i b_i D_i / sum_i b_i``. Statistics, counters and a rule's
    further vectors have a geometric median of their own.

    Departure from the paper: the first v is the weighted mean of the differences clipped to their median
    length. From the plain mean, ten steps would not come back from a lie of any size.
    """

    purpose = "The point of least total distance to the answers: for less than half of the weight."
    helps = ("hostile-clients",)
    paper: ClassVar = "pillutla2022rfa"
    STEPS, NU = 10, 1e-6

    def mean(self) -> Vector:
        products = self.products()
        weights = np.array(self.weights) / sum(self.weights)
        lengths = np.sqrt(np.diag(products))
        c = weights * np.minimum(1, np.median(lengths) / np.maximum(lengths, self.NU))
        for _ in range(self.STEPS):
            b = weights / np.maximum(self.NU, distances_to(c, products))
            c = b / b.sum()
        return self.combined(c)


class CenteredClip(WholeAnswers):
    """``v += mean_i clip(D_i - v, tau)``, three steps from the v of the last update, 0 at first.

    Karimireddy et al. 2021, "Learning from History for Byzantine Robust Optimization" (arXiv 2012.10333),
    Equation (CC): ``clip(z, tau) = z min(1, tau / |z|)``. Clients are weighted equally. v is in the rule's
    state. Statistics, counters and a rule's further vectors, which have no such scale, take their median.
    """

    purpose = "Differences to the last step, clipped: withstands lies that add up over rounds."
    helps = ("hostile-clients",)
    paper: ClassVar = "karimireddy2021history"
    STEPS = 3

    def __init__(self, reference: Sequence[NDArray], dtype: np.dtype, tau: float) -> None:
        super().__init__(reference, dtype)
        self.tau = tau

    def mean_of(self, state: RuleState | None) -> Vector:
        if state is None:
            raise AggregationError("mean 'centered-clip' needs configure_train with a model")
        n = len(self.answers)
        centre = state.vector(CENTRE, like=np.zeros(sum(entry.size for entry in self.reference), self.dtype))
        products = self.products(centre)
        c = np.zeros(n + 1)
        c[n] = 1
        for _ in range(self.STEPS):
            distances = distances_to(c, products)[:n]
            kept = self.tau / np.maximum(distances, self.tau)
            c *= 1 - kept.mean()
            c[:n] += kept / n
        mean = self.combined(c, centre)
        centre[:] = np.where(np.isfinite(mean), mean, 0)
        return mean


def squared_distances(products: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return all ``|D_i - D_j|^2``, given ``D D^T``."""
    norms = np.diag(products)
    return np.maximum(0, norms[:, None] + norms - 2 * products)


def distances_to(c: NDArray[np.float64], products: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return all ``|D_i - sum_j c_j D_j|``, given ``D D^T``."""
    towards = products @ c
    return np.sqrt(np.maximum(0, np.diag(products) - 2 * towards + c @ towards))


def krum_order(distances: NDArray[np.float64], f: int) -> NDArray[np.intp]:
    """Return the positions by the sum of squared distances to the n - f - 2 nearest others, at least one.

    Ties, such as of two that are each other's only neighbour, go to whose next neighbours are nearer.
    """
    others = np.sort(distances + np.diag(np.full(len(distances), np.inf)), axis=1)
    nearest = max(1, len(distances) - f - 2)
    return np.lexsort(np.cumsum(others, axis=1)[:, nearest - 1 :].T[::-1])


def best(distances: NDArray[np.float64], f: int, m: int) -> list[int]:
    """Return the positions of the m answers that `krum_order` has first."""
    return [int(i) for i in krum_order(distances, f)[:m]]


def surely_best(
    distances: NDArray[np.float64], f: int, m: int, norms: NDArray[np.float64]
) -> list[int] | None:
    """Return `best` of rounded distances; None where `ROUNDING` could change it.

    ``norms`` are the squares of the answers' norms.
    """
    order = best(distances, f, m + 1)
    if len(order) <= m:
        return order
    (least, error), (other, more) = (_score(distances, i, f, norms) for i in order[-2:])
    return order[:m] if other - least > error + more else None


def _score(distances: NDArray[np.float64], i: int, f: int, norms: NDArray[np.float64]) -> tuple[float, float]:
    """Return Krum's score of an answer by rounded distances, and how far that may be from the true one."""
    others = np.delete(distances[i], i)
    nearest = np.argsort(others)[: max(1, len(others) - f - 1)]
    rounded = len(nearest) * norms[i] + np.delete(norms, i)[nearest].sum()
    return float(others[nearest].sum()), ROUNDING * float(rounded)


def middle_mean(values: NDArray, kept: int) -> NDArray:
    """Return, by row of sorted values, the mean of those nearest to the row's median: a run of them.

    Of the runs only those are tried that have a middle value, which is as near as any.
    """
    n = values.shape[1]
    columns = np.ascontiguousarray(values.T)
    median = (columns[(n - 1) // 2] + columns[n // 2]) / 2
    first, last = max(0, (n - 1) // 2 - kept + 1), min(n // 2, n - kept)
    ends = [np.maximum(median - columns[i], columns[i + kept - 1] - median) for i in range(first, last + 1)]
    runs = first + np.argmin(ends, axis=0)[:, None] + np.arange(kept)
    mean: NDArray = np.take_along_axis(values, runs, axis=1).mean(axis=1)
    return mean
