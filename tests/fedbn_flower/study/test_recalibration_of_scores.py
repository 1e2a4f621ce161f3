"""Recalibration of scores: closed forms, laws, and scikit-learn's functions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logit, softmax
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import log_loss, roc_curve

from fedbn_flower.study.recalibration import TEMPERATURES, Recalibration

RNG = np.random.default_rng(0)


def two(scores):
    """Probabilities of both of two classes."""
    scores = np.asarray(scores, float)
    return np.stack([1 - scores, scores], axis=1)


def drawn(n, classes, seed=0):
    """Logits, and targets that are as likely as these say."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (n, classes))
    return logits, np.array([rng.choice(classes, p=p) for p in softmax(logits, axis=1)])


@pytest.mark.parametrize(("score", "positives", "n"), [(0.9, 6, 10), (0.6, 8, 10)])
def test_the_temperature_of_equal_scores_is_a_closed_form(score, positives, n):
    """sigmoid(logit(p) / T) is the share of positives."""
    targets = np.repeat([1, 0], [positives, n - positives])
    fitted = Recalibration.fitted("temperature", two([score] * n), targets)
    assert fitted.found == pytest.approx([logit(score) / logit(positives / n)], rel=1e-6)
    assert fitted(two([score]))[0] == pytest.approx([1 - positives / n, positives / n], rel=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_logits_times_two_have_twice_the_temperature_and_come_out_the_same(classes):
    logits, targets = drawn(1500, classes)
    one, other = (
        Recalibration.fitted("temperature", softmax(factor * logits, axis=1), targets) for factor in (1, 2)
    )
    assert one.found[0] == pytest.approx(1, abs=0.1)
    assert other.found[0] == pytest.approx(2 * one.found[0], rel=1e-6)
    new = RNG.normal(size=(20, classes))
    same = one(softmax(new, axis=1)), other(softmax(2 * new, axis=1))
    np.testing.assert_allclose(*same, rtol=1e-6)
    np.testing.assert_allclose(same[0], softmax(new / one.found[0], axis=1), rtol=1e-6)
    assert (same[0].argmax(1) == new.argmax(1)).all()  # no decision changes


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(3, 40), st.floats(0.05, 20))
def test_the_likelihood_of_the_cases_it_is_fitted_to_is_never_worse(seed, classes, n, factor):
    rng = np.random.default_rng(seed)
    scores, targets = softmax(factor * rng.normal(size=(n, classes)), axis=1), rng.integers(0, classes, n)
    fitted = Recalibration.fitted("temperature", scores, targets)
    before, after = (log_loss(targets, s, labels=range(classes)) for s in (scores, fitted(scores)))
    assert after <= before + 1e-9
    assert math.isnan(fitted.found[0]) or TEMPERATURES[0] <= fitted.found[0] <= TEMPERATURES[1]


def test_cases_that_are_all_right_have_the_least_temperature_and_finite_losses():
    fitted = Recalibration.fitted("temperature", two([0.4, 0.6]), np.array([0, 1]))
    assert fitted.found == pytest.approx([TEMPERATURES[0]], rel=1e-3)
    extreme = fitted(two([0.0, 1.0, 0.5]))
    assert np.isfinite(np.log(extreme)).all()
    assert extreme[2] == pytest.approx([0.5, 0.5])


def test_isotonic_is_scikit_learns_and_no_more_certain_than_laplace():
    scores = RNG.random(60)
    targets = (RNG.random(60) < scores**2).astype(int)
    fitted = Recalibration.fitted("isotonic", two(scores), targets)
    new = np.linspace(0, 1, 101)
    expected = IsotonicRegression(out_of_bounds="clip").fit(scores, targets).predict(new)
    np.testing.assert_allclose(fitted(two(new))[:, 1], np.clip(expected, 1 / 62, 61 / 62))
    assert (np.diff(fitted(two(new))[:, 1]) >= 0).all()
    assert expected.min() == 0  # so that the clip was needed
    squares = [((s - targets) ** 2).mean() for s in (fitted(two(scores))[:, 1], scores)]
    assert squares[0] < squares[1]


def test_the_threshold_by_hand():
    """At 0.4 both positives but one negative are found, at 0.7 half of the positives and no negative."""
    scores, targets = [0.1, 0.2, 0.3, 0.5, 0.4, 0.7], np.array([0, 0, 0, 0, 1, 1])
    fitted = Recalibration.fitted("threshold", two(scores), targets)
    assert fitted.found == pytest.approx([0.35])  # half-way between 0.3 and 0.4
    odds = fitted(two(scores))
    np.testing.assert_allclose(odds[:, 1] / odds[:, 0], np.divide(scores, 1 - np.array(scores)) * 0.65 / 0.35)
    assert (odds[:, 1] >= 0.5).tolist() == [False, False, False, True, True, True]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=2, max_size=40))
def test_the_threshold_has_the_greatest_youden_index_of_scikit_learns_curve(cases):
    scores, targets = np.array([s for s, _ in cases]) / 20, np.array([t for _, t in cases]).astype(int)
    fitted = Recalibration.fitted("threshold", two(scores), targets)
    if len(set(targets)) < 2:
        assert math.isnan(fitted.found[0])
        return
    rates, sensitivities, _ = roc_curve(targets, scores)
    best = (sensitivities - rates).max()
    if best < 1e-9:
        assert math.isnan(fitted.found[0])
        return
    decided = fitted(two(scores))[:, 1] >= 0.5
    found = decided[targets == 1].mean() - decided[targets == 0].mean()
    assert found == pytest.approx(best)


@pytest.mark.parametrize("method", ["temperature", "isotonic", "threshold"])
def test_without_cases_of_two_classes_scores_stay(method):
    fitted = Recalibration.fitted(method, two([0.3, 0.8]), np.array([1, 1]))
    assert math.isnan(fitted.found[0])
    np.testing.assert_allclose(fitted(two([0.2, 0.9])), two([0.2, 0.9]), rtol=1e-15)


@pytest.mark.parametrize("method", ["temperature", "isotonic", "threshold"])
def test_each_label_is_recalibrated_by_itself_as_two_classes_are(method):
    scores = RNG.random((50, 3))
    targets = (RNG.random((50, 3)) < scores**2).astype(np.int64)
    targets[:, 2] = 0
    fitted, new = Recalibration.fitted(method, scores, targets), RNG.random((9, 3))
    found = fitted(new)
    for label in (0, 1):
        alone = Recalibration.fitted(method, two(scores[:, label]), targets[:, label])
        assert fitted.found[label] == alone.found[0]
        np.testing.assert_array_equal(found[:, label], alone(two(new[:, label]))[:, 1])
    assert math.isnan(fitted.found[2])
    np.testing.assert_allclose(found[:, 2], new[:, 2], rtol=1e-12)


def test_of_three_classes_there_is_a_temperature_only():
    scores, targets = np.eye(3) * 0.7 + 0.1, np.arange(3)
    for method in ("isotonic", "threshold"):
        with pytest.raises(ValueError, match=f"{method} is of two classes or labels, not of 3 classes"):
            Recalibration.fitted(method, scores, targets)
