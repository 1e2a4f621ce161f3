"""How far clients are apart, and which classes are told: by hand."""

import numpy as np
import pytest
from flwr.app import MetricRecord

from clients import Classification, NextCharacter, Regression
from fedbn_flower.records.metrics import spread
from fedbn_flower.results.classes import class_counts, per_class


def records(name, *values):
    return [MetricRecord({name: value}) for value in values]


def test_an_accuracy_is_worst_where_it_is_low_and_a_loss_where_it_is_high():
    """0.5, 1 and 0.75: the mean is 0.75, the squared distances 1/16, 1/16 and 0. 1, 3, 5 and 7: mean 4,
    squared distances 9, 1, 1, 9. What is no number is the worst."""
    found = spread(records("accuracy", 0.5, 1.0, 0.75), Classification())
    of_all = {"worst-client-accuracy": 0.5, "worst-tenth-accuracy": 0.5}
    assert found == pytest.approx(of_all | {"client-std-accuracy": np.sqrt(1 / 24)})
    found = spread(records("loss", 3.0, 7.0, 1.0, 5.0), Regression())
    expected = {"worst-client-loss": 7, "worst-tenth-loss": 7, "client-std-loss": np.sqrt(5)}
    assert found == pytest.approx(expected)
    assert np.isnan(spread(records("loss", 1.0, np.nan, 2.0), Classification())["worst-client-loss"])


@pytest.mark.parametrize(("clients", "worst"), [(1, 1), (14, 1), (16, 2), (24, 2), (26, 3)])
def test_the_worst_tenth_is_rounded_and_at_least_one(clients, worst):
    """Of 0, 1, ..., K - 1: the mean of the first, or last, m is (m - 1) / 2 from the end."""
    values = np.random.default_rng(0).permutation(clients).astype(float)
    low = spread(records("accuracy", *values), NextCharacter())["worst-tenth-accuracy"]
    high = spread(records("perplexity", *values), NextCharacter())["worst-tenth-perplexity"]
    assert low == pytest.approx((worst - 1) / 2)
    assert high == pytest.approx(clients - 1 - (worst - 1) / 2)


def test_one_client_has_no_spread_and_nobody_none():
    assert spread(records("loss", 2.0), Classification())["client-std-loss"] == 0
    assert spread(records("f1", 2.0), Classification()) == {}
    assert spread([], Classification()) == {}


def test_the_test_set_s_have_their_own():
    a = MetricRecord({"accuracy": 0.5, "test-accuracy": 0.25})
    b = MetricRecord({"accuracy": 1.0, "test-accuracy": 0.75})
    found = spread([a, b], Classification())
    assert (found["worst-client-accuracy"], found["worst-client-test-accuracy"]) == (0.5, 0.25)
    assert found["client-std-test-accuracy"] == 0.25


def output(hits, examples):
    return MetricRecord({"class-hits": hits, "class-examples": examples})


def test_every_example_of_a_class_counts_alike():
    """1 of 2 and 3 of 6 are 4 of 8; nobody has the third."""
    counts = [class_counts(m, "", 3) for m in (output([1, 1, 0], [2, 1, 0]), output([3, 0, 0], [6, 3, 0]))]
    assert per_class("abc", counts).as_json() == {
        "names": ["a", "b", "c"], "examples": [8, 4, 0], "accuracy": [0.5, 0.25, None]
    }  # fmt: skip
    assert per_class("abc", []) is None


def test_examples_that_all_clients_have_count_once():
    counts = [np.array([[1, 0], [4, 2]]), np.array([[3, 2], [4, 2]])]
    assert per_class("ab", counts, shared=True).as_json() == {
        "names": ["a", "b"], "examples": [4, 2], "accuracy": [0.5, 0.5],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("hits", "examples"),
    [
        ([1, 1, 0, 0], [2, 1, 0, 0]),
        ([1.0, 1.0, np.nan], [2.0, 2.0, 2.0]),
        ([-1, 0, 0], [1, 1, 1]),
        ([2**70, 0, 0], [1, 1, 1]),
        (1, 2),
    ],
)
def test_what_is_no_count_by_class_is_not_used(hits, examples):
    assert class_counts(output(hits, examples), "", 3) is None
    assert class_counts(MetricRecord({"class-hits": [1, 1, 1]}), "", 3) is None
