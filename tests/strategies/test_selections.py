"""Which of the available clients a selection draws."""

from itertools import permutations

import numpy as np
import pytest

from fedbn_flower.strategies import SELECTIONS, Candidates
from fedbn_flower.strategies.messages.nodes import sample


def candidates(sizes, losses=None):
    """Nodes of these sizes, and which of them were asked for their losses."""
    asked = []

    def of(positions):
        asked.extend(positions.tolist())
        return np.array(losses, float)[positions]

    return Candidates(3, np.arange(len(sizes)), np.array(sizes), of), asked


def test_uniform_is_what_a_strategy_draws_by_itself():
    known, _ = candidates([1] * 20)
    for seed in range(20):
        drawn = SELECTIONS["uniform"]().choose(known, 5, np.random.default_rng((seed, 3, 1)))
        assert sorted(drawn) == sample(range(20), 5, (seed, 3, 1))


@pytest.mark.slow
def test_by_size_draws_one_after_the_other():
    """The probability of a set is the sum over its orders of p_a p_b / (1 - p_a)."""
    sizes = np.array([1, 2, 3, 4])
    known, asked = candidates(sizes)
    rng, times = np.random.default_rng(0), {}
    for _ in range(20_000):
        drawn = frozenset(SELECTIONS["by-size"]().choose(known, 2, rng).tolist())
        times[drawn] = times.get(drawn, 0) + 1
    p = sizes / sizes.sum()
    exact = {}
    for a, b in permutations(range(4), 2):
        exact[frozenset((a, b))] = exact.get(frozenset((a, b)), 0) + p[a] * p[b] / (1 - p[a])
    for drawn, probability in exact.items():  # four deviations of a share are at most 0.014
        assert times[drawn] / 20_000 == pytest.approx(probability, abs=0.014)
    assert asked == []


def test_who_has_no_examples_is_drawn_last():
    known, _ = candidates([0, 5, 0, 5])
    drawn = [SELECTIONS["by-size"]().choose(known, 3, np.random.default_rng(seed)) for seed in range(20)]
    assert {frozenset(some[:2].tolist()) for some in drawn} == {frozenset({1, 3})}
    assert {int(some[2]) for some in drawn} == {0, 2}


def test_power_of_choice_takes_the_greatest_losses_of_those_it_asks():
    known, asked = candidates([7] * 6, [0.3, 0.9, 0.1, 0.5, np.nan, 0.7])
    for seed in range(50):
        asked.clear()
        chosen = SELECTIONS["power-of-choice"]("4").choose(known, 2, np.random.default_rng(seed)).tolist()
        assert len(set(asked)) == len(asked) == 4
        best = [i for i in (1, 5, 3, 0, 2, 4) if i in asked]  # in the order of losses; who is silent is last
        assert chosen == best[:2]


def test_all_candidates_are_asked_only_if_some_are_left_out():
    known, asked = candidates([7] * 6, range(6))
    assert len(SELECTIONS["power-of-choice"]("2").choose(known, 3, np.random.default_rng(0))) == 3
    assert asked == []


@pytest.mark.parametrize(
    ("name", "argument"), [("uniform", "2"), ("power-of-choice", ""), ("power-of-choice", "0")]
)
def test_an_argument_that_is_not_allowed(name, argument):
    with pytest.raises(ValueError, match=r"nothing|D >= 1"):
        SELECTIONS[name](argument)


def test_sizes_of_which_none_is_known_draw_alike():
    known, _ = candidates([0] * 6)
    drawn = [SELECTIONS["by-size"]().choose(known, 2, np.random.default_rng(seed)) for seed in range(40)]
    assert {len(set(some.tolist())) for some in drawn} == {2}
    assert set(np.concatenate(drawn).tolist()) == set(range(6))
