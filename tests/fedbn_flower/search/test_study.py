"""What is asked for next, and what is pruned, without any run."""

import math

import pytest

from fedbn_flower.search.search import Dimension
from fedbn_flower.search.search_folder import COMPLETE, FAILED, PRUNED
from fedbn_flower.search.study import WARM_UP, Study, warm_up_rounds

SPACE = (Dimension("rate", (), 1e-3, 1.0), Dimension("size", (), 4, 64), Dimension("kind", ("a", "b")))
ROUNDS = 6


def new_study(seed=0, higher=True):
    return Study(SPACE, seed, ROUNDS, higher)


def curve(values):
    """A figure by round, best at rate 0.1 and kind b; every seventh trial or so fails."""
    best = 1 - abs(math.log10(values["rate"]) + 1) / 4 + 0.1 * (values["kind"] == "b")
    return {number: best * number / ROUNDS for number in range(1, ROUNDS + 1)}


def searched(trials, stops=()):
    """The table of a search that was stopped before some of its trials."""
    rows, study = [], new_study()
    for number in range(trials):
        if number in stops:
            study = new_study()
            for row in rows:
                study.add(*row)
        trial = study.ask(number)
        state, by_round = COMPLETE, {}
        for server_round, value in curve(trial.params).items():
            trial.report(value, server_round)
            by_round[server_round] = value
            if server_round < ROUNDS and trial.should_prune():
                state = PRUNED
                break
        if number % 7 == 3:
            state, by_round = FAILED, {}
        value = by_round.get(ROUNDS) if state == COMPLETE else None
        study.tell(trial, state, value)
        rows.append((dict(trial.params), state, value, by_round))
    return rows


def test_stopped_anywhere_it_asks_for_the_same_values():
    whole = searched(24)
    assert searched(24, stops=range(1, 24)) == whole
    assert {state for _, state, _, _ in whole} == {COMPLETE, PRUNED, FAILED}
    values = [tuple(values.values()) for values, *_ in whole]
    assert len(set(values)) == len(values)


def test_values_are_in_their_ranges_log_uniform_and_others_with_another_seed():
    assert new_study(0).ask(0).params != new_study(1).ask(0).params != new_study(1).ask(1).params
    asked = [new_study().ask(number).params for number in range(200)]
    assert all(1e-3 <= values["rate"] <= 1 and 4 <= values["size"] <= 64 for values in asked)
    assert {type(values["size"]) for values in asked} == {int}
    below = sum(values["rate"] < 10**-1.5 for values in asked)
    assert 72 < below < 128  # half of them: four standard deviations are 28


@pytest.mark.parametrize(("higher", "worse", "better"), [(True, 0.4, 0.6), (False, 0.6, 0.4)])
def test_what_is_worse_than_the_median_is_pruned_after_the_warm_up(higher, worse, better):
    study = new_study(higher=higher)

    def pruned(number, figure):
        trial = study.ask(number)
        found = []
        for server_round in range(1, ROUNDS + 1):
            trial.report(figure, server_round)
            found.append(trial.should_prune())
        study.tell(trial, COMPLETE, figure)
        return found

    for number in range(WARM_UP):  # the median is 0.5
        assert not any(pruned(number, 0.5))
    assert not any(pruned(WARM_UP, better))
    first = warm_up_rounds(ROUNDS)
    assert first == 2
    assert pruned(WARM_UP + 1, worse) == [False] * first + [True] * (ROUNDS - first)
