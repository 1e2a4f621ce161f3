"""What an app expects of its clients' metrics: an answer that is not so costs itself, and nothing else."""

import math

import pytest
from flwr.app import ConfigRecord, MetricRecord
from hypothesis import given
from hypothesis import strategies as st

from strategies import ExpectedMetrics, FedAvg, Range, ReplyRefused

from .helpers import MODEL, CannedGrid, moved, record, train, train_reply

NUMBERS = st.one_of(st.floats(), st.integers(-(2**62), 2**62), st.sampled_from([0, 1, 1.5, 1e300, math.nan]))
EXPECTED = ExpectedMetrics(
    {"accuracy": Range(0, 1), "count": Range(1, 9, whole=True), "hits": Range(0, 9, whole=True, length=2)},
    {"round"},
    ("global-",),
    most=2,
    longest=3,
)


@given(NUMBERS, st.floats(-5, 5), st.floats(-5, 5), st.booleans())
def test_a_range_holds_the_numbers_between_its_bounds(value, one, other, whole):
    low, high = sorted((one, other))
    clipped = min(max(value, low), high)
    expected = clipped == value and (not whole or value == int(value))
    assert Range(low, high, whole).holds(value) == expected
    assert Range(low, high, whole, length=1).holds([value]) == expected
    assert not Range(low, high, whole).holds([value])
    assert not Range(low, high, whole, length=2).holds([value])
    assert not Range(low, high, whole, length=1).holds(value)


UNEXPECTED = [
    ({"accuracy": 1.01}, "'accuracy' is 1.01, not a number in [0, 1]"),
    ({"accuracy": math.nan}, "'accuracy' is nan, not a number in [0, 1]"),
    ({"accuracy": [1.0, 1.0]}, "'accuracy' is a list of 2, not a number in [0, 1]"),
    ({"count": 0.5}, "'count' is 0.5, not a whole number in [1, 9]"),
    ({"hits": [1, 2, 3]}, "'hits' is a list of 3, not 2 whole numbers in [0, 9]"),
    ({"round": 1}, "the metric name 'round' is reserved"),
    ({"global-f1": 1}, "the metric name 'global-f1' is reserved"),
    ({"a": 1, "b": 1, "c": 1}, "3 further metrics, at most 2"),
    ({"a": [1, 2], "b": [3, 4]}, "4 numbers in lists, at most 3"),
    ({"\x1b[2J": 1}, r"the metric name '\x1b[2J' is not 1 to 100 printable characters"),
    ({"": 1}, "the metric name '' is not 1 to 100 printable characters"),
    ({"x" * 101: 1}, f"the metric name '{'x' * 100}' is not 1 to 100 printable characters"),
]


def test_what_is_not_expected_is_refused():
    for metrics, output in UNEXPECTED:
        with pytest.raises(ReplyRefused) as refused:
            EXPECTED.check(MetricRecord(metrics))
        assert str(refused.value) == output


def test_what_is_expected_is_not_refused():
    EXPECTED.check(MetricRecord({"accuracy": 1, "count": 9.0, "hits": [0, 9], "a": math.nan}))
    EXPECTED.check(MetricRecord({"a": 0, "x" * 100: [1, 2, 3]}))
    ExpectedMetrics().check(MetricRecord({"round": 1e300, "": math.nan, "x" * 101: [1] * 10**5}))


def test_the_mean_is_of_those_that_are_as_expected():
    """In both phases; by hand, for clients that count 1, 2 and 3, of which the second says what cannot be."""
    strategy, values = FedAvg(), (0.5, 1.5, 1.0)
    strategy.expected_metrics = EXPECTED

    def answer(message, i):
        return train_reply(message, moved(i), i + 1, accuracy=values[i])

    grid, arrays = CannedGrid(3, answer), record(MODEL)
    updated, trained = train(strategy, arrays, grid)
    assert strategy.phase_report.failures.keys() == {1}
    assert updated["layer.weight"].numpy() == pytest.approx(1 + 3 * 2 / 4)
    messages = strategy.configure_evaluate(1, arrays, ConfigRecord(), grid)
    evaluated = strategy.aggregate_evaluate(1, grid.send_and_receive(messages))
    assert strategy.phase_report.failures.keys() == {1}
    assert trained["accuracy"] == evaluated["accuracy"] == pytest.approx((0.5 + 3 * 1.0) / 4)
