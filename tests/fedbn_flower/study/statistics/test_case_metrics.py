"""Metrics of weighted cases: those of scikit-learn, of as many copies of each case as its weight says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from clients.problems.metrics import METRICS as OF_RUNS
from clients.problems.metrics import Predicted
from fedbn_flower.study.statistics.case_metrics import METRICS, Auroc, ByFunction, Mean, OfStates, predicted
from fedbn_flower.study.statistics.cases import Cases


def of_arrays(targets, scores):
    n = len(targets)
    return Cases(np.asarray(targets), np.asarray(scores, float), np.arange(n), ("a",), (n,))


@st.composite
def weighted(draw):
    """Few distinct scores, so that many are tied."""
    n = draw(st.integers(4, 30))
    row = st.tuples(st.integers(0, 1), st.integers(0, 6), st.integers(0, 3))
    targets, scores, weights = np.array(draw(st.lists(row, min_size=n, max_size=n))).T
    return of_arrays(targets, scores / 6), weights.astype(float)


BY_SKLEARN = {
    "accuracy": lambda t, s: sklearn_metrics.accuracy_score(t, s >= 0.5),
    "sensitivity": lambda t, s: sklearn_metrics.recall_score(t, s >= 0.5),
    "specificity": lambda t, s: sklearn_metrics.recall_score(t, s >= 0.5, pos_label=0),
    "brier": sklearn_metrics.brier_score_loss,
    "auroc": sklearn_metrics.roc_auc_score,
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", METRICS)
@given(weighted())
def test_a_weight_is_a_number_of_copies(name, pair):
    cases, weights = pair
    copies = np.repeat(np.arange(len(cases)), weights.astype(int))
    targets, scores = cases.targets[copies], cases.scores[copies]
    found = METRICS[name](cases, np.stack([weights, 2 * weights]))
    if len(set(targets)) == 2:
        assert found == pytest.approx([BY_SKLEARN[name](targets, scores)] * 2)
    elif name == "auroc" or not len(targets):
        assert np.isnan(found).all()


def test_any_function_of_scikit_learn_is_a_metric():
    """Of a case that counts twice four of six pairs are in order."""
    cases = of_arrays([0, 1, 1, 0], [0.2, 0.4, 0.1, 0.3])
    found = ByFunction(sklearn_metrics.roc_auc_score)(cases, np.array([[1.0, 2, 1, 1]]))
    assert found == pytest.approx([4 / 6])


def test_where_a_function_refuses_its_cases_there_is_no_value():
    def refuses(targets, scores, sample_weight):
        raise ValueError("one class")

    assert np.isnan(ByFunction(refuses).value(of_arrays([0, 1], [0.2, 0.4])))


@pytest.mark.parametrize("name", ["auroc", "f1", "ece", "balanced-accuracy"])
def test_a_metric_of_a_run_is_that_of_the_copies(name):
    """Its own value of the whole sample, whose cases are copied."""
    import torch

    rng = np.random.default_rng(0)
    scores = rng.dirichlet(np.ones(3), 600)
    cases = of_arrays(rng.integers(0, 3, 600), scores)
    weights = rng.integers(0, 4, 600)
    copies = np.repeat(np.arange(600), weights)
    metric = OF_RUNS[name](Predicted("classes", 3))
    state = metric.batch(torch.tensor(scores[copies]), torch.tensor(cases.targets[copies]))
    found = OfStates(metric)(cases, weights[None].astype(float))
    assert found == pytest.approx([metric.value(state)])


def test_a_single_score_is_that_of_class_one_to_a_metric_of_a_run():
    rng = np.random.default_rng(0)
    cases = of_arrays(rng.integers(0, 2, 500), rng.random(500))
    metric = OfStates(OF_RUNS["balanced-accuracy"](Predicted("classes", 2)))
    both = [METRICS[name].value(cases) for name in ("sensitivity", "specificity")]
    assert metric.value(cases) == pytest.approx(np.mean(both))
    assert metric.bounds == (0, 1)


def test_numbers_have_no_second_column():
    rng = np.random.default_rng(2)
    cases = of_arrays(rng.normal(size=50), rng.normal(size=50))
    metric = OfStates(OF_RUNS["rmse"](Predicted("numbers", 1)))
    assert metric.value(cases) == pytest.approx(np.sqrt(np.mean((cases.scores - cases.targets) ** 2)))


def test_scores_between_two_edges_are_ties():
    """Positive 0.1 and 0.6, negative 0.2 and 0.7, in bins 0, 1, 0 and 2: of four pairs one tie, one right."""
    cases = of_arrays([1, 1, 0, 0], [0.1, 0.6, 0.2, 0.7])
    assert Auroc(np.array([0.3, 0.65])).value(cases) == 1.5 / 4
    assert Auroc().value(cases) == 1 / 4


def test_several_classes_are_one_against_the_rest_and_two_are_class_one():
    rng = np.random.default_rng(1)
    scores, targets = rng.dirichlet(np.ones(4), 200), rng.integers(0, 4, 200)
    expected = sklearn_metrics.roc_auc_score(targets, scores, multi_class="ovr", average="macro")
    assert METRICS["auroc"].value(of_arrays(targets, scores)) == pytest.approx(expected)
    two = np.stack([1 - scores[:, 0], scores[:, 0]], axis=1)
    one = METRICS["auroc"].value(of_arrays(targets % 2, scores[:, 0]))
    assert METRICS["auroc"].value(of_arrays(targets % 2, two)) == pytest.approx(one)


def test_a_class_without_cases_is_left_out_of_the_mean():
    scores = np.array([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.8, 0.1], [0.6, 0.3, 0.1]])
    targets = np.array([0, 1, 1, 0])
    assert METRICS["auroc"].value(of_arrays(targets, scores)) == 1


def test_brier_and_prediction_of_several_classes_by_hand():
    """(0.3^2 + 0.2^2 + 0.1^2) / 2 = 0.07 and (0.5^2 + 0.5^2) / 2 = 0.25."""
    cases = of_arrays([0, 2], [[0.7, 0.2, 0.1], [0.5, 0.0, 0.5]])
    assert METRICS["brier"].value(cases) == pytest.approx(0.16)
    assert predicted(cases).tolist() == [0, 0]
    assert METRICS["accuracy"].value(cases) == 0.5
    assert predicted(of_arrays([0, 1], [0.2, 0.3]), 0.3).tolist() == [0, 1]


def test_without_cases_that_count_there_is_no_mean():
    cases = of_arrays([0, 0], [0.1, 0.2])
    assert np.isnan(METRICS["sensitivity"].value(cases))
    assert Mean(lambda cases: cases.scores).value(cases) == pytest.approx(0.15)
