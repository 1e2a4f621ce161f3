"""What attackers send in the place of what they trained, by the formula of each attack.

A model is the stepped entries by name. ``x`` is the model that clients got, ``x_i`` what one of them trained,
``d_i = x_i - x`` its update. Statistics, counters and further records stay as they were trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Model = Mapping[str, NDArray]


def scaled(x: Model, trained: Model, factor: float) -> dict[str, NDArray]:
    """Return ``x + factor d_i``.

    A negative factor is ``sign-flip``. A positive one is the model replacement of Bagdasaryan et al. 2020,
    "How to Backdoor Federated Learning" (arXiv 1807.00459), Equation 3: ``G + gamma (X - G)``.
    """
    return {n: _like(x[n], x[n] + factor * (np.float64(1) * trained[n] - x[n])) for n in trained}


def noise(x: Model, names: Sequence[str], sigma: float, rng: np.random.Generator) -> dict[str, NDArray]:
    """Return ``x + sigma N(0, 1)``: an update of noise alone, as of Blanchard et al. 2017 (1703.02757)."""
    return {n: _like(x[n], x[n] + sigma * rng.standard_normal(x[n].shape)) for n in names}


def alie_z(n: int, f: int) -> float:
    """Return z of "A Little Is Enough" for f attackers of n clients, at least 0.

    Baruch et al. 2019 (arXiv 1902.06156), Algorithm 3: ``s = floor(n / 2 + 1) - f`` honest clients have to be
    farther from the mean than the attackers, so ``Phi(z) = (n - f - s) / (n - f)``. It is 0, or would be
    below (of two clients, minus infinity), where the attackers are too few to hide behind anybody.
    """
    s = n // 2 + 1 - f
    return NormalDist().inv_cdf(min(max((n - f - s) / (n - f), 1 / 2), 1 - 1e-9))


def alie(x: Model, honest: Sequence[Model], attackers: int, z: float | None) -> dict[str, NDArray]:
    """Return ``mean - z std`` of the honest by coordinate; by default z is `alie_z`. std divides by n."""
    if z is None:
        z = alie_z(len(honest) + attackers, attackers)
    return {n: _like(x[n], mean - z * deviation) for n, (mean, deviation) in _moments(honest).items()}


def ipm(x: Model, honest: Sequence[Model], attackers: int, epsilon: float | None) -> dict[str, NDArray]:
    """Return ``x - epsilon mean(d_i)`` of the honest.

    Xie et al. 2019, "Fall of Empires" (arXiv 1903.03936): inner product manipulation.
    """
    assert epsilon is not None
    return {n: _like(x[n], x[n] - epsilon * (mean - x[n])) for n, (mean, _) in _moments(honest).items()}


def min_max(x: Model, honest: Sequence[Model], attackers: int, _: float | None) -> dict[str, NDArray]:
    """Return ``mean - gamma std`` with the greatest gamma that is no farther from any of the honest than two
    of these are from each other.

    Shejwalkar and Houmansadr 2021, "Manipulating the Byzantine", Equation 9, with the inverse standard
    deviation as perturbation. They search gamma; here each of the honest bounds it by the root of a
    quadratic.
    """
    moments = _moments(honest)
    products, towards, length = np.zeros((len(honest), len(honest))), np.zeros(len(honest)), 0.0
    for name, (mean, deviation) in moments.items():
        away = _rows(honest, name) - mean.reshape(-1)
        products += away @ away.T
        towards += away @ deviation.reshape(-1)
        length += float(np.vdot(deviation, deviation))
    gamma = greatest_gamma(products, towards, length)
    return {n: _like(x[n], mean - gamma * deviation) for n, (mean, deviation) in moments.items()}


def greatest_gamma(products: NDArray[np.float64], towards: NDArray[np.float64], length: float) -> float:
    """Return the greatest gamma for which no ``|a_i + gamma p|`` is above the greatest ``|a_i - a_j|``.

    Parameters
    ----------
    products : NDArray
        All ``a_i . a_j``, of the differences a_i of the honest to their mean.
    towards : NDArray
        All ``a_i . p``.
    length : float
        ``p . p``; if it is 0, so is gamma.
    """
    if not length:
        return 0.0
    squares = np.diag(products)
    farthest = float(np.max(squares[:, None] + squares - 2 * products))
    room = np.maximum(farthest - squares, 0)  # length gamma^2 + 2 towards gamma <= room
    roots = np.sqrt(towards**2 + length * room)
    return float(
        np.min(np.where(towards > 0, room / np.maximum(roots + towards, 1e-300), (roots - towards) / length))
    )


def _moments(honest: Sequence[Model]) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return the honest clients' mean and standard deviation of each entry, float64."""
    found = {}
    for name, like in honest[0].items():
        rows = _rows(honest, name)
        mean, deviation = rows.mean(axis=0), rows.std(axis=0)
        found[name] = mean.reshape(like.shape), deviation.reshape(like.shape)
    return found


def _rows(honest: Sequence[Model], name: str) -> NDArray[np.float64]:
    return np.stack([model[name].reshape(-1) for model in honest]).astype(np.float64)


def _like(entry: NDArray, values: NDArray) -> NDArray:
    """Return values in an entry's dtype; what is too large for it the server refuses."""
    with np.errstate(over="ignore"):
        return np.asarray(values, entry.dtype)


FROM_THE_OTHERS = {"alie": alie, "ipm": ipm, "min-max": min_max}
"""What all attackers of a round send, of the model that clients got, the models of the honest, the number of
attackers, and the attack's argument."""
