"""Floats as whole numbers: no sum wraps, no length grows, and the error is what is stated."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbn_flower.secagg import integers
from fedbn_flower.secagg.answers import states_of
from fedbn_flower.secagg.integers import ERROR, Grid, rounded_norm
from tests.quick import diagonal_quick


def rng(seed=0):
    return np.random.default_rng(seed)


def of_length(length, entries, seed=0):
    vector = rng(seed).standard_normal(entries)
    return vector * (length / np.linalg.norm(vector))


def signed(q):
    return [int(x) for x in q.view(f"i{q.itemsize}")]


def test_three_numbers_by_hand():
    """A clip of 4 is 8 steps of 1/2; what is a multiple of it is not rounded."""
    grid = Grid.of_length(8, clip=4.0, clients=2, entries=3, bits=32)
    assert (grid.step, grid.bound) == (0.5, 8)
    q = grid.quantise(np.array([1.5, -2.0, 0.0]), rng())
    assert q.dtype == np.uint32
    assert q.tolist() == [3, 2**32 - 4, 0]
    assert grid.read(q + q).tolist() == [3.0, -4.0, 0.0]


class AllWords:
    """A generator whose words are all of 16 bits, each once."""

    def __init__(self):
        self.bit_generator, self.left = self, np.arange(integers.UNIFORM, dtype=np.uint16).view(np.uint64)

    def random_raw(self, count):
        found, self.left = self.left[:count], self.left[count:]
        return found


@pytest.mark.parametrize(
    ("number", "fraction"),
    diagonal_quick(
        [(np.uint32, w) for w in (0, 5, -1, -7, 2**21, 2**31 - 2, -(2**31))]
        + [(np.uint64, w) for w in (3, 2**47)],
        [0.0, 2.0**-30, 1 / 3, 0.5, 1 - 2.0**-16, 1 - 2.0**-20],
    ),
)
def test_the_bias_of_rounding_is_at_most_as_stated(number, fraction):
    """Of all numbers that a generator can give, each once. A whole number stays what it is."""
    dtype, whole = number
    x, out = whole + fraction, np.empty(integers.UNIFORM, dtype)
    squares = integers._round(np.full(integers.UNIFORM, x), 1.0, AllWords(), out)
    found = out.view(f"i{out.itemsize}").astype(np.int64)
    ups = np.count_nonzero(found - math.floor(x))
    assert set(found - math.floor(x)) <= {0, 1}
    assert abs(ups / integers.UNIFORM - (x - math.floor(x))) <= integers.BIAS < 1e-5
    if x == whole:
        assert not ups
    assert squares == pytest.approx(sum(float(q) ** 2 for q in found), rel=1e-9)


@pytest.mark.parametrize("clients", [2, 10])
def test_the_error_of_a_rounds_mean_is_at_most_as_stated(clients):
    grid = Grid.plan(0.1, clients, 10_000, bits=14)
    vectors = [of_length(0.1, 10_000, seed) for seed in range(clients)]
    errors = []
    for seed in range(20):
        total = sum(grid.quantise(vector, rng(seed * 100 + i)) for i, vector in enumerate(vectors))
        errors.append(np.linalg.norm(grid.read(total) / clients - np.mean(vectors, 0)) / 0.1)
    deviation = math.sqrt(np.mean(np.square(errors)))
    # A fraction that is as good as uniform has a variance of 1/6, and 1/4 at most is what is stated.
    assert deviation == pytest.approx(grid.error * math.sqrt(4 / 6), rel=0.02)


@pytest.mark.parametrize("clients", [1, 2, 3, 100, 1000, 10_000, 100_000])
@pytest.mark.parametrize("entries", [1, 1000, 11_000_000])
def test_by_default_the_error_is_below_a_tenth_of_a_per_mille(clients, entries):
    grid = Grid.plan(0.7, clients, entries)
    assert grid.error < ERROR == 1e-4
    assert grid.bits == (64 if (clients, entries) == (100_000, 11_000_000) else 32)


def test_bits_of_a_clients_numbers_decide_the_bits_of_the_sum():
    assert Grid.plan(1.0, 100, 10, bits=16).bits == 32
    assert Grid.plan(1.0, 2**16 - 1, 10, bits=16).bits == 32
    assert Grid.plan(1.0, 2**16, 10, bits=16).bits == 64
    assert Grid.plan(1.0, 100, 10, bits=33).bits == 64
    assert Grid.plan(1.0, 100, 10, bits=16, modulus=64).bits == 64
    assert Grid.plan(1.0, 100, 10, bits=16).bound == 2**15 - 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bits": 1}, "from 2 to 48"),
        ({"bits": 49}, "from 2 to 48"),
        ({"bits": 30, "modulus": 32}, "32 bits hold"),
        ({"clip": 0.0}, "greater than 0"),
        ({"clip": math.nan}, "greater than 0"),
        ({"clients": 2**31, "modulus": 32}, "32 bits hold"),
        ({"modulus": 16}, "16 bits hold"),
    ],
)
def test_a_grid_that_cannot_be_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Grid.plan(**{"clip": 1.0, "clients": 100, "entries": 5, **values})


@settings(max_examples=60, deadline=None)
@given(
    clip=st.floats(1e-6, 1e6),
    clients=st.integers(1, 3000),
    entries=st.integers(1, 40),
    bits=st.one_of(st.none(), st.integers(2, 48)),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 2**32),
    peak=st.booleans(),
)
def test_no_sum_wraps_and_no_vector_is_longer_than_the_bound(clip, clients, entries, bits, dtype, seed, peak):
    grid = Grid.plan(clip, clients, entries, bits)
    vector = np.eye(1, entries)[0] * clip if peak else of_length(clip, entries, seed)
    vector = (vector * (1 - 1e-7)).astype(dtype)
    q = grid.quantise(vector, rng(seed))
    exact = signed(q)
    assert sum(x * x for x in exact) <= grid.norm**2
    assert max(map(abs, exact)) <= grid.bound
    total = np.zeros_like(q)
    for _ in range(min(clients, 5)):
        total += q
    assert signed(total) == [min(clients, 5) * x for x in exact]
    assert clients * grid.bound < 2 ** (grid.bits - 1)
    np.testing.assert_allclose(grid.read(q), vector, atol=grid.step * 1.001, rtol=1e-6)


@pytest.mark.parametrize("bits", [32, 64])
def test_what_so_many_vectors_cannot_sum_to_is_seen(bits):
    """Three at the bound, and not four of them, nor three that weigh less."""
    grid = Grid.plan(2.0, 5, 1000, modulus=bits)
    vectors = [grid.quantise(of_length(2.0, 1000), rng(seed)) for seed in range(4)]
    three = vectors[0] + vectors[1] + vectors[2]
    assert grid.is_possible(three, 3, 3.0)
    assert not grid.is_possible(three + vectors[3], 3, 3.0)
    assert not grid.is_possible(three, 3, 2.99)
    assert grid.error_of(3, 1.5) == pytest.approx(math.sqrt(1000 * 3) / (2 * grid.bound) / 1.5, rel=1e-6)


def test_the_bound_of_a_rounded_vectors_length_is_that_of_the_paper():
    """Theorem 1 in two regimes: a long vector hardly grows; a short one by a whole step an entry at most."""
    beta = 2.0**-40
    expected = math.sqrt(1e6**2 + 2500 + math.sqrt(2 * math.log(1 / beta)) * (1e6 + 50))
    assert rounded_norm(1e6, 10_000) == pytest.approx(expected, rel=2e-9)
    assert rounded_norm(1.0, 4) == pytest.approx(3.0)


def test_a_rounding_that_makes_a_vector_too_long_is_done_again(monkeypatch):
    """Fractions of a half in 10,000 entries: half of the roundings are longer than the mean square length."""
    grid = Grid.of_length(50.0, 1.0, 1, 10_000, 32)
    vector = np.full(10_000, 0.5 / 50)  # a length of 50 steps
    lengths = [sum(x * x for x in signed(grid.quantise(vector, rng(i)))) for i in range(20)]
    assert 4800 < min(lengths) < 5000 < max(lengths) < 5200 < grid.norm**2
    monkeypatch.setattr(integers, "REJECTED", 0.999)
    tight = Grid.of_length(50.0, 1.0, 1, 10_000, 32)
    assert tight.norm**2 == pytest.approx(5000, rel=0.002)
    assert max(sum(x * x for x in signed(tight.quantise(vector, rng(i)))) for i in range(20)) <= tight.norm**2


def test_what_float32_overshoots_is_shortened_and_what_is_longer_refused():
    grid = Grid.plan(1.0, 3, 1000)
    vector = of_length(1 + 5e-7, 1000)
    assert sum(x * x for x in signed(grid.quantise(vector, rng()))) <= grid.norm**2
    with pytest.raises(ValueError, match=r"length 1\.01: must be 1 at most"):
        grid.quantise(of_length(1.01, 1000), rng())


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(wrong):
    with pytest.raises(ValueError, match="at most"):
        Grid.plan(1.0, 3, 2).quantise(np.array([0.0, wrong]), rng())


def test_a_length_that_is_known_is_not_computed():
    grid = Grid.plan(1.0, 3, 1000)
    vector = of_length(0.7, 1000)
    np.testing.assert_array_equal(grid.quantise(vector, rng(), length=0.7), grid.quantise(vector, rng()))
    with pytest.raises(ValueError, match=r"length 1\.01: must be 1 at most"):
        grid.quantise(vector, rng(), length=1.01)


def test_another_number_of_entries_is_refused():
    with pytest.raises(ValueError, match="3 numbers: must be 2"):
        Grid.plan(1.0, 3, 2).quantise(np.zeros(3), rng())


@pytest.mark.parametrize("shape", [(0,), (6,), (2, 3), (integers.BLOCK + 7,)])
@pytest.mark.parametrize("modulus", [32, 64])
def test_shapes_stay(shape, modulus):
    grid = Grid.plan(1.0, 3, math.prod(shape), modulus=modulus)
    vector = of_length(1.0, math.prod(shape)).reshape(shape) if math.prod(shape) else np.zeros(shape)
    before = vector.copy()
    q = grid.quantise(vector, rng())
    assert (q.shape, q.dtype) == (shape, np.dtype(f"u{modulus // 8}"))
    np.testing.assert_array_equal(vector, before)
    np.testing.assert_allclose(grid.read(q), vector, atol=grid.step)


def test_a_step_of_1_is_a_step_like_others():
    grid = Grid.of_length(10, 10.0, 1, 2, 32)
    assert grid.step == 1
    assert sum(signed(grid.quantise(np.array([0.5, 0.5]), rng(i)))[0] for i in range(20)) not in (0, 20)
    assert grid.error > 0


def test_states_of_metrics_are_counts_or_numbers_as_they_are_expected():
    """A count comes back whole; a sum of scores keeps its fraction."""
    found = SimpleNamespace(states={"hits": np.array([2.9, 4.2]), "score": np.array([2.9])}, counts={"n": 1})
    expected = {"hits": np.zeros((1, 2), np.int64), "score": np.zeros(1, np.float64)}
    states = states_of(expected, found)["states"]
    assert states["hits"].numpy().tolist() == [[3, 4]]
    assert states["score"].numpy().tolist() == [2.9]


def test_a_sum_is_possible_up_to_the_length_of_its_weights_its_rounding_and_its_noise():
    """2 x 10 / 0.5 steps, 3 clients' rounding of sqrt(4) each, and 12 (sqrt(4) / 12 + 1) of noise: 60."""
    grid = Grid(32, 0.5, 10.0, 3, 4, 0.0, spare=12)
    found = [grid.is_possible(np.uint32([0, length, 0, 0]), 3, 2.0) for length in (60, 61)]
    assert found == [True, False]
