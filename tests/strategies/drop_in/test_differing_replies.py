"""Replies that Flower's classes and ours treat differently; each test is a row of docs/drop-in.md."""

import logging

import flwr.serverapp.strategy as flower
import numpy as np
import pytest
from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp.exception import AggregationError, InconsistentMessageReplies

import strategies

from ..helpers import record
from .scenarios import APIS, MODEL, RULES, answer, client, make, mocks, phase, run, trained

BAD = 1  # the node whose reply is not as it should be


def with_one(bad):
    """Replies of which node `BAD`'s is ``bad(message)``."""
    return lambda messages: [
        bad(m) if i == BAD else answer(m, trained(MODEL, i), i + 1) for i, m in enumerate(messages)
    ]


def without_one(strategy):
    """The round in which node `BAD` sends nothing."""
    return phase(
        strategy, lambda messages: [one for i, one in enumerate(with_one(answer)(messages)) if i != BAD]
    )


def of(message, *records, **more):
    return Message(RecordDict({**dict(records), **more}), reply_to=message)


def assert_dropped(bad, rule="FedAvg"):
    """Ours goes on as if the node had not answered, and says so."""
    strategy, expected = make(strategies, rule), without_one(make(strategies, rule))
    arrays, _ = phase(strategy, with_one(bad))
    for name, array in expected[0].items():
        np.testing.assert_array_equal(arrays[name], array)
    assert list(strategy.phase_report.failures) == [BAD]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_answer_that_is_not_finite_does_not_count(rule, value):
    bad = lambda m: answer(m, MODEL | {"b": np.full(2, value, np.float32)}, 1)  # noqa: E731
    assert_dropped(bad, rule)
    if rule not in ("FedMedian", "FedTrimmedAvg"):
        with np.errstate(all="ignore"):
            arrays, _ = phase(make(flower, rule), with_one(bad))
        assert not np.isfinite(arrays["b"]).all()


def test_if_no_answer_is_finite_the_model_stays():
    bad = lambda messages: [answer(m, MODEL | {"b": np.full(2, np.nan, np.float32)}) for m in messages]  # noqa: E731
    assert np.isnan(phase(flower.FedAvg(), bad)[0]["b"]).all()
    assert phase(strategies.FedAvg(), bad) == [None, None]


ODD = {
    "a name is missing": lambda m: answer(m, {"w": MODEL["w"], "b": MODEL["b"]}, 1),
    "a name too many": lambda m: answer(m, MODEL | {"more": np.ones(1, np.float32)}, 1),
    "no model": lambda m: answer(m, None, 1),
    "no metrics": lambda m: of(m, arrays=record(MODEL)),
    "no weight": lambda m: of(m, arrays=record(MODEL), metrics=MetricRecord({"loss": 1.0})),
    "a list for a weight": lambda m: answer(m, MODEL, [1, 2]),
}


@pytest.mark.parametrize("odd", ODD)
def test_one_odd_answer_costs_itself(odd):
    assert_dropped(ODD[odd])
    with pytest.raises(InconsistentMessageReplies):
        phase(flower.FedAvg(), with_one(ODD[odd]))


def test_an_entry_of_another_shape_costs_the_answer():
    bad = lambda m: answer(m, MODEL | {"b": np.ones(3, np.float32)}, 1)  # noqa: E731
    assert_dropped(bad)
    with pytest.raises(ValueError, match="broadcast"):
        phase(flower.FedAvg(), with_one(bad))


@pytest.mark.parametrize("examples", [-3, float("nan"), float("inf"), 2**53 + 1])
def test_a_weight_that_is_none_costs_the_answer(examples):
    """Flower's mean of weights 1, -3, 3, 4 has a negative part; with NaN or infinity it is NaN.

    A weight above 2^53 would be all of it.
    """
    bad = lambda m: answer(m, MODEL, examples)  # noqa: E731
    assert_dropped(bad)
    with np.errstate(all="ignore"):
        theirs = phase(flower.FedAvg(), with_one(bad))[0]
    assert not np.allclose(theirs["b"], without_one(flower.FedAvg())[0]["b"])


def test_an_answer_of_no_examples_counts_as_a_failure():
    """The model is the same."""
    bad = lambda m: answer(m, MODEL, 0)  # noqa: E731
    assert_dropped(bad)
    theirs = phase(flower.FedAvg(), with_one(bad))[0]
    np.testing.assert_allclose(theirs["b"], without_one(strategies.FedAvg())[0]["b"], rtol=1e-6)


def test_no_examples_at_all():
    bad = lambda messages: [answer(m, MODEL, 0) for m in messages]  # noqa: E731
    with pytest.raises(ZeroDivisionError):
        phase(flower.FedAvg(), bad)
    with pytest.raises(InconsistentMessageReplies, match="'num-examples' is 0, not a positive number"):
        phase(strategies.FedAvg(), bad)


PARTS = {
    "some of the names": {"w": MODEL["w"] + 1},
    "more names": {name: array + 1 for name, array in MODEL.items()} | {"more": np.ones(1, np.float32)},
}


@pytest.mark.parametrize("part", PARTS)
def test_answers_that_all_have_other_names_than_the_model(part):
    given = lambda messages: [answer(m, PARTS[part]) for m in messages]  # noqa: E731
    assert phase(flower.FedAvg(), given)[0].keys() == PARTS[part].keys()
    with pytest.raises(AggregationError):
        phase(make(flower, "FedAdagrad"), given)
    for rule in ("FedAvg", "FedAdagrad"):
        with pytest.raises(InconsistentMessageReplies, match="same reason: wrong names"):
            phase(make(strategies, rule), given)


def test_answers_that_all_have_other_shapes_than_the_model():
    def stepped(api):
        strategy = make(api, "FedAdagrad")
        strategy.current_arrays = {"0": np.ones(3)}
        return strategy.aggregate_train(1, mocks([np.ones(2), np.ones(2)]))

    for api, exception in zip(APIS, (AggregationError, InconsistentMessageReplies), strict=True):
        with pytest.raises(exception):
            stepped(api)


def test_integers_sent_and_floats_answered():
    """``np.array([0, 0])`` as an initial model."""
    given = lambda messages: [answer(m, {"w": np.array([0.5, 1.5])}) for m in messages]  # noqa: E731
    start = {"w": np.array([0, 0])}
    np.testing.assert_array_equal(phase(flower.FedAvg(), given, start)[0]["w"], [0.5, 1.5])
    with pytest.raises(InconsistentMessageReplies, match="w: dtype float64, expected int64"):
        phase(strategies.FedAvg(), given, start)


def test_several_records_in_a_reply():
    """Ours takes the model by its name, and the metrics that hold the weight."""
    more = {"statistics": record({"s": np.ones(1)}), "local-metrics": MetricRecord({"loss": 2.0})}
    given = lambda messages: [  # noqa: E731
        Message(RecordDict({**answer(m, trained(MODEL, i), i + 1).content, **more}), reply_to=m)
        for i, m in enumerate(messages)
    ]
    with pytest.raises(InconsistentMessageReplies):
        phase(flower.FedAvg(), given)
    function = lambda records, key: MetricRecord({"sum": sum(r["local-metrics"]["loss"] for r in records)})  # noqa: E731
    arrays, metrics = phase(strategies.FedAvg(train_metrics_aggr_fn=function), given)
    expected = phase(strategies.FedAvg(), with_one(lambda m: answer(m, trained(MODEL, BAD), BAD + 1)))[0]
    np.testing.assert_array_equal(arrays["w"], expected["w"])
    assert metrics == {"sum": 8.0}


def test_metrics_that_not_all_clients_report():
    """(1 * 0.5 + 3 * 2.0) / 4 over those two; lists of different lengths have no mean."""

    def given(messages):
        output = ({"loss": 0.5, "per": [1.0]}, {}, {"loss": 2.0, "per": [1.0, 2.0]}, {})
        return [answer(m, MODEL, i + 1, **output[i]) for i, m in enumerate(messages)]

    with pytest.raises(InconsistentMessageReplies):
        phase(flower.FedAvg(), given)
    assert phase(strategies.FedAvg(), given)[1] == {"loss": pytest.approx(6.5 / 4)}


def test_a_second_answer_to_the_same_message_does_not_count():
    twice = lambda messages: [  # noqa: E731
        answer(messages[0], {"w": np.array([0.0])}),
        *(answer(messages[1], {"w": np.array([3.0])}) for _ in range(2)),
    ]
    theirs, ours = (phase(api.FedAvg(), twice, {"w": np.zeros(1)}, nodes=2)[0]["w"] for api in APIS)
    assert (theirs[0], ours[0]) == (pytest.approx(2.0), pytest.approx(1.5))


def test_the_replies_are_left_as_they_were():
    """Flower's FedMedian and FedTrimmedAvg take the models out: the metric function no longer sees them."""
    for rule in ("FedMedian", "FedTrimmedAvg"):
        for api, left in zip(APIS, (0, 3), strict=True):
            replies = []
            phase(make(api, rule), lambda m, kept=replies: kept.extend(with_one(answer_all)(m)) or kept)
            assert {len(one.content["arrays"]) for one in replies} == {left}


def answer_all(message):
    return answer(message, trained(MODEL, BAD), 1)


def test_the_mean_does_not_depend_on_the_order_of_the_replies():
    def given(order):
        values = np.random.default_rng(0).normal(size=(20, 500)).astype(np.float32)
        return lambda messages: [answer(messages[i], {"w": values[i]}, i + 1) for i in order]

    def bits(api):
        orders = (range(20), range(19, -1, -1))
        start = {"w": np.zeros(500, np.float32)}
        return [phase(api.FedAvg(), given(o), start, nodes=20)[0]["w"].tobytes() for o in orders]

    (theirs, theirs_reversed), (ours, ours_reversed) = bits(flower), bits(strategies)
    assert ours == ours_reversed
    assert theirs != theirs_reversed


def test_what_is_logged_of_a_failure(caplog):
    """A warning with the round; Flower's is information, and names no round."""
    logger = logging.getLogger("flwr")
    before, logger.propagate = logger.propagate, True
    bad = with_one(lambda m: answer(m, MODEL | {"b": np.full(2, np.nan, np.float32)}, 1))
    with caplog.at_level(logging.INFO, "flwr"):
        phase(strategies.FedAvg(), bad)
        run(strategies.FedAvg(), rounds=1, work=client)
    logger.propagate = before
    warnings = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert warnings == ["round 1, train: node 1 dropped: b: not finite"]
    assert "aggregate_train: Received 4 results and 0 failures" in caplog.messages
    assert "\t│\t├── min_replies: 1" in caplog.messages  # the summary has more settings


def test_an_answer_that_a_subclass_leaves_out_is_reported(caplog):
    """A warning, as of one that never came; Flower says nothing of either."""
    logger = logging.getLogger("flwr")
    before, logger.propagate = logger.propagate, True
    with caplog.at_level(logging.WARNING, "flwr"):
        for api in APIS:
            phase(api.FedAvg(), lambda messages: [answer(m, MODEL, 1) for m in messages[1:]])
    logger.propagate = before
    assert caplog.messages == ["round 1, train: node 0 dropped: no answer came, or the app left it out"]


def test_values_beyond_1e18():
    """The square of an entry's length is to fit float32."""
    start = {"w": np.ones(3)}

    def given(messages):
        return [answer(m, {"w": start["w"] * x}, 1) for m, x in zip(messages, (1e19, 3), strict=True)]

    theirs, ours = (phase(api.FedAvg(), given, start, nodes=2)[0]["w"][0] for api in APIS)
    assert (theirs, ours) == (pytest.approx(5e18), 3.0)


def test_complex_numbers():
    start = {"w": np.array([1 + 2j, 3], np.complex64)}
    given = lambda messages: [answer(m, {"w": start["w"] * i}, 1) for i, m in enumerate(messages)]  # noqa: E731
    assert phase(flower.FedAvg(), given, start, nodes=3)[0]["w"].tolist() == [1 + 2j, 3]
    with pytest.raises(ValueError, match="entry 'w' has the unsupported dtype complex64"):
        phase(strategies.FedAvg(), given, start, nodes=3)
