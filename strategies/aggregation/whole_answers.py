"""Robust means that compare whole answers by their distances: Krum, Bulyan, geometric median, centered clip.

Distances are between the differences of the stepped parameters. All come from one product of the matrix of
the differences with itself, summed in float64: ``|D_i - D_j|^2 = K_ii + K_jj - 2 K_ij`` with ``K = D D^T``.
A point ``sum_i c_i D_i`` is kept as its coefficients c, so iterations read no answer again.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from flwr.serverapp.exception import AggregationError
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .means import PART, TrimmedMean
from .rule_state import RuleState
from .vectors import Vector, blocks

CENTRE = "clip-centre"
"""The vector of a rule's state from which `CenteredClip` starts."""

ROUNDING = 2e-7
"""How far distances by float32 products may be off, of the squares of the norms."""

FINE = 1e-12
"""The same for float64 products: far more than the error of their sums, so rounding never breaks a tie."""

QUICK, CHECKED = 8, 16
"""The part of a block that float32 products are of, and how many of them there are to one that is checked."""

MAYBE = 16
"""How many choices that rounding leaves open are followed, at most."""


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

        There is no state if no model was sent: differences are then whole models.
        """
        return self.mean()

    def beside(self, stepped: "WholeAnswers") -> Vector:
        """Return the mean of other vectors of the same answers, given the mean of the stepped parameters."""
        return self.mean()

    def products(self, *others: Vector) -> NDArray[np.float64]:
        """Return ``D D^T``, float64 (n, n), over the answers' differences and then these vectors.

        A constant that is not finite, such as an attention mask, counts as 0.
        """
        n = len(self.answers)
        total = np.zeros((n + len(others),) * 2)
        for part in blocks(self.size, PART):
            rows = np.empty((len(total), part.stop - part.start))
            self.write_differences(part, range(n), rows)
            for row, other in zip(rows[n:], others, strict=True):
                row[:] = other[part]
            total += with_itself(rows)
        return total

    def combined(self, coefficients: NDArray[np.float64], *others: Vector) -> Vector:
        """Return ``sum_i c_i D_i`` over the answers and then these vectors; c_i = 0 leaves an answer out."""
        n = len(self.answers)
        used = [i for i in range(n) if coefficients[i]]
        total = np.zeros(self.size, self.dtype)
        scales = coefficients.astype(self.dtype)
        for part in blocks(total.size, PART):
            difference = np.empty((1, part.stop - part.start), self.dtype)
            for i in used:
                self.write_differences(part, [i], difference)
                difference *= scales[i]
                total[part] += difference[0]
            for scale, other in zip(scales[n:], others, strict=True):
                total[part] += scale * other[part]
        return total


class Krum(WholeAnswers):
    """The mean of the m answers whose n - f - 2 nearest others are nearest, by squared distances.

    Blanchard et al. 2017, "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent" (arXiv
    1703.02757), Section 4; m = 1 is Krum, more are Multi-Krum. Clients are weighted equally. All other
    vectors of an answer count if its stepped parameters were chosen.
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

        Products are computed in float32 and summed in float64 by block. Where rounding could change the
        choice, those of the answers concerned are recomputed in float64, and those of all answers if these
        are many or still undecided.
        """
        products, off = self.quick_products()
        chosen, unsure = self.select(squared_distances(products), off)
        if 0 < len(unsure) <= len(products) // 8:
            self.refine(products, off, unsure)
            chosen, unsure = self.select(squared_distances(products), off)
        return self.select_exactly(squared_distances(self.products())) if unsure else chosen

    def select_exactly(self, distances: NDArray[np.float64]) -> list[int]:
        """Return the positions of the answers to take."""
        return best(distances, self.f, self.m)

    def select(self, distances: NDArray[np.float64], off: NDArray[np.float64]) -> tuple[list[int], list[int]]:
        """Return the positions of the answers to take, and of those that rounding decides; see `sure`."""
        return sure(distances, self.f, self.m, off)

    def refine(self, products: NDArray[np.float64], off: NDArray[np.float64], chosen: list[int]) -> None:
        """Recompute in float64, in place, all products with the chosen answers, and the squared norms."""
        n = len(self.answers)
        exact, norms = np.zeros((len(chosen), n)), np.zeros(n)
        with np.errstate(over="ignore", invalid="ignore"):
            for part in blocks(self.size, PART):
                rows = np.empty((n, part.stop - part.start))
                self.write_differences(part, range(n), rows)
                rows[~np.isfinite(rows)] = 0
                exact += rows[chosen] @ rows.T
                norms += np.vecdot(rows, rows)
        products[chosen], products[:, chosen] = exact, exact.T
        np.fill_diagonal(products, norms)
        off[chosen] = FINE * (norms[chosen, None] + norms)
        off[:, chosen] = off[chosen].T

    def quick_products(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return `products` of the answers, each block's in float32, and how far off the distances may be.

        The error is a share of the squared norms: `ROUNDING`, or twice the error found in a check. Roundings
        add up if all entries have the same magnitude, as in answers that send signs.
        """
        n = len(self.answers)
        total, shown, true = np.zeros((n, n)), np.zeros(n), np.zeros(n)
        with np.errstate(over="ignore", invalid="ignore"):
            for number, part in enumerate(blocks(self.size, QUICK)):
                rows = np.empty((n, part.stop - part.start), np.float32)
                self.write_differences(part, range(n), rows)
                if self.dtype != np.float32 and not np.isfinite(rows).all():
                    return np.full((n, n), np.nan), np.zeros((n, n))  # too large for float32
                product = with_itself(rows)
                total += product
                if number % CHECKED == 0:
                    shown += np.diag(product)
                    true += [np.dot(row, row) for row in map(np.float64, rows)]
            shares = np.abs(shown / np.where(true, true, 1) - 1)[true > 0]
        share = max(shares[np.isfinite(shares)], default=0)
        return total, max(ROUNDING, 2 * share) * np.add.outer(np.diag(total), np.diag(total))

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
    """By coordinate, the mean of the n - 4 f middle values of n - 2 f answers that Krum chooses one by one.

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

    def select_exactly(self, distances: NDArray[np.float64]) -> list[int]:
        left = list(range(len(distances)))
        for _ in range(len(distances) - 2 * self.f):
            del left[best(distances[np.ix_(left, left)], self.f, 1)[0]]
        return sorted(set(range(len(distances))) - set(left))

    def select(self, distances: NDArray[np.float64], off: NDArray[np.float64]) -> tuple[list[int], list[int]]:
        everyone = tuple(range(len(distances)))
        states = {everyone}  # of two possible firsts the other is mostly next: few states remain
        for _ in range(len(distances) - 2 * self.f):
            after = set()
            for left in states:
                among = np.ix_(left, left)
                chosen, unsure = sure(distances[among], self.f, 1, off[among])
                after |= {left[:i] + left[i + 1 :] for i in chosen + unsure}
            if len(after) > MAYBE:
                return [], list(everyone)
            states = after
        always = set(everyone).difference(*states)
        ever = set(everyone) - set(everyone).intersection(*states)
        return sorted(always), sorted(ever - always)

    def mean_over(self, chosen: Sequence[int]) -> Vector:
        kept = len(chosen) - 2 * self.f
        mean = np.empty(self.size, self.dtype)
        for part in blocks(mean.size, PART):
            with np.errstate(invalid="ignore"):  # constants that are not finite, such as attention masks
                mean[part] = middle_mean(self.sorted_columns(part, chosen), kept)
        return mean


class GeometricMedian(WholeAnswers):
    """``argmin_v sum_i w_i |D_i - v|`` by ten steps of the smoothed Weiszfeld algorithm, nu 1e-6.

    Pillutla et al. 2022, "Robust Aggregation for Federated Learning" (arXiv 1912.13445), Algorithm 2:
    ``b_i = w_i / max(nu, |D_i - v|); v = sum_i b_i D_i / sum_i b_i``. Statistics, counters and a rule's
    further vectors have a geometric median of their own.

    Departure from the paper: the first v is the weighted mean of the differences clipped to their median
    length. From the plain mean, ten steps would not recover from an arbitrarily large malicious answer.
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
        centre = state.vector(CENTRE, like=np.zeros(self.size, self.dtype))
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

    Ties, such as between two that are each other's only neighbour, are broken by the next-nearest neighbours.
    """
    others = np.sort(distances + np.diag(np.full(len(distances), np.inf)), axis=1)
    nearest = max(1, len(distances) - f - 2)
    return np.lexsort(np.cumsum(others, axis=1)[:, nearest - 1 :].T[::-1])


def best(distances: NDArray[np.float64], f: int, m: int) -> list[int]:
    """Return the positions of the first m answers in `krum_order`."""
    return [int(i) for i in krum_order(distances, f)[:m]]


def sure(
    distances: NDArray[np.float64], f: int, m: int, off: NDArray[np.float64]
) -> tuple[list[int], list[int]]:
    """Return the positions that are certainly among the m `best`, and those that may be.

    ``off`` bounds the errors of the distances.
    """
    if m >= len(distances):
        return list(range(len(distances))), []
    least, most = krum_scores(distances - off, f), krum_scores(distances + off, f)
    within = most < np.sort(least)[m]
    perhaps = ~within & ~(least > np.sort(most)[m - 1])
    if within.sum() == m:
        perhaps[:] = False
    return [int(i) for i in np.flatnonzero(within)], [int(i) for i in np.flatnonzero(perhaps)]


def krum_scores(distances: NDArray[np.float64], f: int) -> NDArray[np.float64]:
    """Return each answer's sum of squared distances to the n - f - 2 nearest others, at least one."""
    others = np.sort(distances + np.diag(np.full(len(distances), np.inf)), axis=1)
    scores: NDArray[np.float64] = others[:, : max(1, len(distances) - f - 2)].sum(axis=1)
    return scores


def with_itself(rows: NDArray) -> NDArray:
    """Return ``rows @ rows.T``; if that is not finite, with 0 for entries that are not finite."""
    with np.errstate(invalid="ignore"):
        product: NDArray = rows @ rows.T
        if not np.isfinite(product).all():
            rows[~np.isfinite(rows)] = 0
            product = rows @ rows.T
    return product


def middle_mean(values: NDArray, kept: int) -> NDArray:
    """Return, by row of sorted values, the mean of those nearest to the row's median: a run of them.

    Only runs that contain a middle value are tried, since it is at least as near as any other.
    """
    n = values.shape[1]
    first, last = max(0, (n - 1) // 2 - kept + 1), min(n // 2, n - kept)
    columns = np.ascontiguousarray(values[:, first : last + kept].T)
    median = (columns[(n - 1) // 2 - first] + columns[n // 2 - first]) / 2
    runs = sliding_window_view(values[:, first : last + kept], kept, axis=1)
    mean: NDArray = runs[np.arange(len(values)), nearest_run(columns, median, kept)].mean(axis=1)
    return mean


def nearest_run(columns: NDArray, median: NDArray, kept: int) -> NDArray[np.intp]:
    """Return, by column of sorted values, the start of the first run whose farther end is nearest."""
    starts = range(len(columns) - kept + 1)
    if not np.isfinite(columns[[0, -1]]).all():
        ends = [np.maximum(median - columns[i], columns[i + kept - 1] - median) for i in starts]
        return np.asarray(np.argmin(ends, axis=0))
    end, other, least = np.empty((3, len(median)), median.dtype)
    nearer, found = np.empty(len(median), bool), np.zeros(len(median), np.min_scalar_type(starts.stop))
    least[:] = np.inf
    for start in starts:  # as above, in a third of the time: everything is in the cache
        np.subtract(median, columns[start], out=end)
        np.subtract(columns[start + kept - 1], median, out=other)
        np.maximum(end, other, out=end)
        np.less(end, least, out=nearer)
        np.minimum(end, least, out=least)
        np.maximum(found, nearer.view(np.uint8) * found.dtype.type(start), out=found)
    return np.asarray(found, np.intp)
