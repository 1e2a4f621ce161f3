"""The test of calibration: a run's ECE, its exact distribution, and how often it errs."""

from itertools import product

import numpy as np
import pytest

from clients.problems.metrics import METRICS, Predicted
from fedbn_flower.study.statistics.calibration import calibration_test
from fedbn_flower.study.statistics.case_metrics import OfStates
from fedbn_flower.study.statistics.cases import Cases


def cases_of(targets, scores, groups=None):
    groups = np.arange(len(targets)) if groups is None else np.asarray(groups)
    return Cases(np.asarray(targets), np.asarray(scores, float), groups, ("here",), (len(targets),))


@pytest.mark.parametrize("classes", [2, 4])
def test_the_ece_is_the_runs(classes):
    rng = np.random.default_rng(classes)
    scores = rng.dirichlet(np.ones(classes), 200)
    cases = cases_of(rng.integers(0, classes, 200), scores)
    ece = OfStates(METRICS["ece"](Predicted("classes", classes)))
    assert calibration_test(cases, 15, draws=10).ece == pytest.approx(ece.value(cases))


def test_a_calibrated_models_is_that_of_all_outcomes_by_their_probabilities():
    """Three cases in two of four bins: 0.1 alone, 0.6 and 0.7 together."""
    scores = np.array([0.1, 0.6, 0.7])
    found = {}
    for outcome in product((0, 1), repeat=3):
        gap = abs(outcome[0] - 0.1) + abs(outcome[1] + outcome[2] - 1.3)
        chance = np.prod([p if y else 1 - p for y, p in zip(outcome, scores, strict=True)])
        found[outcome] = gap / 3, chance
    tested = calibration_test(cases_of([1, 0, 0], scores), 4, draws=40_000)
    assert tested.ece == pytest.approx(found[1, 0, 0][0])
    assert tested.expected == pytest.approx(sum(gap * chance for gap, chance in found.values()), abs=0.005)
    beyond = sum(chance for gap, chance in found.values() if gap >= tested.ece - 1e-9)
    assert tested.p_value == pytest.approx(beyond, abs=0.01)


def test_of_a_calibrated_model_it_errs_in_a_twentieth_and_a_wrong_one_is_found():
    rng = np.random.default_rng(0)
    truth = rng.random((200, 100))
    outcomes = (rng.random(truth.shape) < truth).astype(int)
    pairs = zip(outcomes, truth, strict=True)
    p_values = [calibration_test(cases_of(*of), 15, draws=99).p_value for of in pairs]
    assert 0.01 <= np.mean(np.array(p_values) <= 0.05) <= 0.1  # 0.05 +- 3 deviations of 0.015
    wrong = calibration_test(cases_of(outcomes.ravel(), np.sqrt(truth.ravel())), 15)
    assert wrong.p_value < 0.01
    assert wrong.ece > wrong.most > wrong.expected


def test_cases_of_a_group_are_as_good_as_one():
    rng = np.random.default_rng(0)
    scores = rng.random(50)
    outcomes = (rng.random(50) < scores).astype(int)
    once = calibration_test(cases_of(outcomes, scores), 15)
    thrice = cases_of(np.repeat(outcomes, 3), np.repeat(scores, 3), np.repeat(np.arange(50), 3))
    assert calibration_test(thrice, 15) == pytest.approx(once)
