"""Discrete Gaussian numbers: their exact probabilities, and the paper's algorithms with fractions."""

import math

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from fedbn_flower.privacy import noise as module
from fedbn_flower.privacy.keys import Key
from fedbn_flower.privacy.noise import STEPS, discrete_gaussian

DRAWS = 40_000


def words(*where):
    return Key(bytes(32)).numbers(*(where or (1, 1, "noise"))).words


def fits(found, weight, reach):
    """Whether the numbers have probabilities proportional to ``weight(x)``, by chi-square."""
    weights = np.array([weight(x) for x in range(-30 * reach, 30 * reach + 1)])
    middle = slice(29 * reach, 31 * reach + 1)
    expected = np.append(weights[middle], weights.sum() - weights[middle].sum()) / weights.sum()
    inside = found[np.abs(found) <= reach]
    counts = np.append(np.bincount(inside + reach, minlength=2 * reach + 1), found.size - inside.size)
    return chisquare(counts, expected * found.size).pvalue > 0.001


@pytest.mark.parametrize("deviation", [1, 2, 3, 8])
def test_numbers_have_their_exact_probabilities(deviation):
    found = discrete_gaussian(words(), DRAWS, deviation)
    assert fits(found, lambda x: math.exp(-(x**2) / (2 * deviation**2)), 2 * deviation)
    assert not fits(found, lambda x: math.exp(-(x**2) / (2 * (1.05 * deviation) ** 2)), 2 * deviation)


@pytest.mark.parametrize("bound", [1, 2, 5, 8, 200])
def test_every_number_below_a_bound_comes_from_as_many_words(bound):
    """All 256 values of the lowest byte, under further bits; none in the place of those that are rejected."""
    stream = iter(np.arange(256, dtype=np.uint64) | np.uint64(0xABCD << 48))
    given = [next(stream) for _ in range(256)]
    again = np.array(given, np.uint64)

    def every(count):
        nonlocal again
        taken, again = again[:count], np.zeros(256, np.uint64)
        return taken.copy()

    found = module._below(every, 256, bound)
    mask = (1 << (bound - 1).bit_length()) - 1
    accepted = [int(word) & mask for word in given if int(word) & mask < bound]
    assert found[[int(word) & mask < bound for word in given]].tolist() == accepted
    assert len({accepted.count(value) for value in range(bound)}) == 1
    assert (found < bound).all()


def test_a_runs_numbers_have_their_deviation_and_are_as_good_as_normal():
    """Of 200,000 numbers the deviation is known to 0.16 %."""
    found = discrete_gaussian(words(), 200_000)
    assert found.dtype == np.int64
    assert found.std() == pytest.approx(STEPS, rel=0.01)
    assert kstest(found / STEPS, "norm").pvalue > 0.001
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.01
    assert chisquare(np.bincount(found & 15)).pvalue > 0.001  # the lowest bits are as good as uniform


def test_one_key_gives_the_same_numbers():
    first, again, other = (discrete_gaussian(words(t, 1, "noise"), 100) for t in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()
