"""What replies may hold, what metric functions see, and what is logged: as with Flower's classes."""

from functools import partial
from itertools import product

import flwr.serverapp.strategy as flower
import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.exception import InconsistentMessageReplies

import strategies

from ..helpers import ndarrays
from .scenarios import (
    APIS,
    EACH_RULE,
    MEANS,
    MODEL,
    RULES,
    answer,
    both,
    client,
    make,
    phase,
    plain,
    run,
    trained,
)

# ---- metric functions -------------------------------------------------------------------------------


def from_a_config(records, key):
    names = sorted(one["config"]["who"] for one in records)
    return MetricRecord(
        {"names": len("".join(names)), "examples": sum(one["metrics"][key] for one in records)}
    )


def from_a_record_of_another_name(records, key):
    return MetricRecord({"worst": max(one["local-metrics"]["loss"] for one in records)})


def from_the_models(records, key):
    models = [one["arrays"]["w"].numpy() for one in records if "arrays" in one]
    return MetricRecord({"spread": float(np.std(models)) if models else 0.0})


def nothing(records, key):
    return None


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "aggregate", [from_a_config, from_a_record_of_another_name, from_the_models, nothing]
)
@EACH_RULE
def test_a_metric_function_is_given_the_whole_records(rule, aggregate):
    def telling(message, node):
        content = dict(client(message, node).content) | {"config": ConfigRecord({"who": f"node {node}"})}
        if aggregate is from_a_record_of_another_name:
            content["local-metrics"] = content.pop("metrics")
        return Message(RecordDict(content), reply_to=message)

    if rule in ("FedMedian", "FedTrimmedAvg") and aggregate is from_the_models:
        aggregate_train = None  # Flower's take the models out of the replies: see test_differences.py
    else:
        aggregate_train = aggregate
    functions = {"train_metrics_aggr_fn": aggregate_train, "evaluate_metrics_aggr_fn": aggregate}
    both(lambda api: run(make(api, rule, **functions), work=telling))


def test_the_default_metric_function_called_by_hand():
    def scenario(api):
        records = [
            RecordDict({"m": MetricRecord({"num-examples": n, "loss": loss, "per": [loss, 1.0]})})
            for n, loss in ((1, 0.5), (3, 2.0), (4.0, 1.0))
        ]
        strategy = api.FedAvg()
        return [
            plain(strategy.train_metrics_aggr_fn(records, "num-examples")),
            plain(strategy.evaluate_metrics_aggr_fn(records, "num-examples")),
        ]

    both(scenario)


def test_a_given_metric_function_is_kept():
    both(lambda api: api.FedAvg(train_metrics_aggr_fn=nothing).train_metrics_aggr_fn is nothing)


# ---- arrays -----------------------------------------------------------------------------------------

MASK = np.triu(np.full((3, 3), -np.inf, np.float32), 1)
CONSTANTS = {
    "-inf": MASK,
    "inf": np.array([np.inf, 1.0], np.float32),
    "nan": np.array([np.nan, 2.0], np.float32),
    "huge": np.array([3e38, -3e38], np.float32),
    "1e20": np.full(4, 1e20, np.float32),
    "float64": np.array([1e300, -np.inf]),
}


@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize("rule", ["FedAvg", "FedMedian"])
def test_a_constant_that_comes_back_as_it_was_sent(rule, constant):
    # The mean of the middle two of four such values is beyond a float32 in Flower's median.
    nodes = 3 if rule == "FedMedian" else 4
    model = MODEL | {"mask": CONSTANTS[constant]}

    def keeping(message, node):
        reply = client(message, node)
        if message.metadata.message_type == "evaluate":
            return answer(message, None, 1)
        kept = ndarrays(reply.content["arrays"]) | {"mask": CONSTANTS[constant]}
        return answer(message, kept, node + 1)

    with np.errstate(all="ignore"):
        both(lambda api: run(make(api, rule), arrays=model, nodes=nodes, work=keeping))


@pytest.mark.parametrize("rule", RULES)
@np.errstate(invalid="ignore")
def test_a_mask_under_a_rule_with_a_step_stays(rule):
    """Flower's adaptive rules and FedAvgM make it NaN: -inf minus -inf."""
    models = [trained(MODEL, i) | {"mask": MASK} for i in range(4)]
    replies = lambda messages: [answer(m, models[i], i + 1) for i, m in enumerate(messages)]  # noqa: E731
    for extra in ({}, {"clip_update_norm": 0.5}, {"mean": "trimmed"}):
        given = {} if rule in ("FedMedian", "FedTrimmedAvg") and "mean" in extra else extra
        arrays, _ = phase(make(strategies, rule, **given), replies, MODEL | {"mask": MASK})
        np.testing.assert_array_equal(arrays["mask"], MASK)
        assert all(np.isfinite(arrays[name]).all() for name in MODEL)
    if rule not in MEANS:
        arrays, _ = phase(make(flower, rule), replies, MODEL | {"mask": MASK})
        assert np.isnan(arrays["mask"]).any()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@EACH_RULE
def test_dtypes(rule, dtype):
    """Values that float16 holds exactly, and moves that it holds."""
    start = {"a": np.array([1.0, -2.0], dtype), "b": np.array(0.5, dtype)}

    def replies(messages):
        return [
            answer(m, {n: a + dtype(0.25 * (i + 1)) for n, a in start.items()})
            for i, m in enumerate(messages)
        ]

    found = [phase(make(api, rule), replies, start)[0] for api in APIS]
    tolerance = 1e-6 if dtype != np.float16 else 1e-3  # of Flower's sums in float16
    for name, theirs in found[0].items():
        assert found[1][name].dtype == dtype
        np.testing.assert_allclose(found[1][name], theirs, rtol=tolerance)


@pytest.mark.parametrize("rule", MEANS)
def test_empty_entries_and_odd_shapes(rule):
    start = {
        "empty": np.zeros((0, 3), np.float32),
        "one": np.ones((1, 1, 1, 1), np.float32),
        "fortran": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        "0": np.array(2.0, np.float32),
    }
    both(lambda api: run(make(api, rule), arrays=start))


# ---- replies that cannot be used by anybody ---------------------------------------------------------


def without(*names):
    return lambda content: {name: one for name, one in content.items() if name not in names}


def metrics_of(**metrics):
    return lambda content: content | {"metrics": MetricRecord(metrics)}


WRONG = {
    "no arrays": without("arrays"),
    "no metrics": without("metrics"),
    "nothing": lambda content: {},
    "no weight": metrics_of(loss=1.0),
    "a list of weights": metrics_of(**{"num-examples": [1, 2]}),
    "two models, neither by name": lambda c: {"metrics": c["metrics"], "a": c["arrays"], "b": c["arrays"]},
    "two metrics without the weight": lambda c: (
        c | {"metrics": MetricRecord({"a": 1}), "more": MetricRecord({"b": 1})}
    ),
}


@EACH_RULE
def test_all_replies_wrong_alike(rule):
    def replies(messages, wrong):
        contents = [wrong(dict(answer(m, MODEL).content)) for m in messages]
        return [Message(RecordDict(one), reply_to=m) for one, m in zip(contents, messages, strict=True)]

    for api, wrong in product(APIS, WRONG.values()):
        with pytest.raises(InconsistentMessageReplies):
            phase(make(api, rule), partial(replies, wrong=wrong))


def test_all_evaluations_wrong_alike():
    def silent(message, node):
        if message.metadata.message_type == "evaluate":
            return Message(RecordDict({"metrics": MetricRecord({"loss": 1.0})}), reply_to=message)
        return client(message, node)

    for api in APIS:
        with pytest.raises(InconsistentMessageReplies):
            run(api.FedAvg(), work=silent)
