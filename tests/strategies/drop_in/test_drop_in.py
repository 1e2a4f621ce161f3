"""Flower's class and ours of the same name, put through the same: they cannot be told apart.

What can be told apart is in test_differences.py, and in docs/drop-in.md.
"""

import copy
import inspect
from functools import partial
from itertools import product

import flwr.serverapp.strategy as flower
import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.exception import AggregationError, InconsistentMessageReplies

import strategies

from ..helpers import CannedGrid, ndarrays, record
from .scenarios import (
    APIS,
    EACH_RULE,
    MEANS,
    MODEL,
    RULES,
    answer,
    both,
    both_raise,
    client,
    make,
    mocks,
    phase,
    plain,
    replies_of,
    run,
    trained,
)  # fmt: skip

# ---- the constructor --------------------------------------------------------------------------------

ARGUMENTS = list(inspect.signature(flower.FedAvg).parameters)[:8]


@EACH_RULE
def test_the_defaults_of_flowers_own_arguments(rule):
    both(lambda api: {name: getattr(getattr(api, rule)(), name) for name in ARGUMENTS})


@pytest.mark.parametrize("rule", ["FedAvg", "FedAvgM", "FedProx", "FedMedian", "FedTrimmedAvg"])
def test_the_order_of_the_arguments(rule):
    values = (0.5, 0.25, 3, 4, 5, "weight", "model", "settings", None, None, 0.3, 0.4)

    def scenario(api):
        names = list(inspect.signature(getattr(flower, rule)).parameters)
        strategy = getattr(api, rule)(*values[: len(names)])
        own = {"FedAvgM": names[10:], "FedProx": ["proximal_mu"], "FedTrimmedAvg": ["beta"]}.get(rule, [])
        return {name: getattr(strategy, name) for name in ARGUMENTS + own}

    both(scenario)


@pytest.mark.parametrize("rule", ["FedAvg", "FedYogi"])
def test_a_phase_switched_off(rule):
    def scenario(api):
        strategy = make(api, rule, fraction_train=0.0, fraction_evaluate=0.0)
        return [strategy.min_train_nodes, strategy.min_evaluate_nodes, run(strategy, rounds=2)]

    both(scenario)


@EACH_RULE
def test_an_unknown_argument(rule):
    both_raise(TypeError, lambda api: make(api, rule, no_such_thing=1))


def test_a_share_to_trim_that_leaves_nothing():
    both_raise(ValueError, lambda api: api.FedTrimmedAvg(beta=0.5))


def test_family():
    """FedProx, FedMedian, FedTrimmedAvg and Krum's are FedAvgs on either side, q-FedAvg one of Flower's."""
    krums = ["Krum", "MultiKrum", "Bulyan"]
    both(lambda api: [issubclass(getattr(api, rule), api.FedAvg) for rule in [*MEANS, *krums]])
    both(lambda api: issubclass(api.Krum, api.MultiKrum))
    both(lambda api: issubclass(api.QFedAvg, flower.FedAvg))


@pytest.mark.parametrize("rule", ["FedAvg", "FedYogi"])  # Flower's FedAvgM starts again from no new model
def test_a_copy_goes_its_own_way(rule):
    def scenario(api):
        strategy = make(api, rule)
        run(strategy, rounds=1)
        twin = copy.deepcopy(strategy)
        return [run(strategy, rounds=2), run(twin, rounds=2)]

    both(scenario)


# ---- start ------------------------------------------------------------------------------------------


@EACH_RULE
def test_a_run_under_other_names_and_another_weight_as_clients_and_server_see_it(rule):
    """Of the records and of the weight; what clients receive, and what ``evaluate_fn`` is given."""

    def scenario(api):
        heard, seen = [], []

        def working(message, node):
            heard.append([message.metadata.message_type, node, plain(message.content["settings"])])
            sent, told = message.content["model"], message.content["settings"]
            known = Message(RecordDict({"arrays": sent, "config": told}), 1, message.metadata.message_type)
            content = {
                "model" if name == "arrays" else name: one
                for name, one in client(known, node).content.items()
            }
            metrics = {name: one for name, one in content["metrics"].items() if name != "num-examples"}
            content["metrics"] = MetricRecord(metrics | {"quality": 0.1 + node})
            return Message(RecordDict(content), reply_to=message)

        def evaluate(server_round, arrays):
            seen.append((server_round, plain(arrays)))
            return MetricRecord({"round": server_round}) if server_round != 1 else None

        names = {"arrayrecord_key": "model", "configrecord_key": "settings", "weighted_by_key": "quality"}
        configs = {"train_config": ConfigRecord({"lr": 0.1}), "evaluate_config": ConfigRecord({"k": 5})}
        result = run(make(api, rule, **names), work=working, evaluate_fn=evaluate, **configs)
        return [result, seen, sorted(heard, key=lambda one: (one[2]["server-round"], one[0], one[1]))]

    both(scenario)


def test_the_timeout_of_every_phase():
    def scenario(api):
        grid = CannedGrid(3, client, tells_partition=False)
        api.FedAvg().start(grid, record(MODEL), 2, timeout=7.5)
        return grid.timeouts

    both(scenario)


def test_a_run_of_no_rounds():
    both(lambda api: run(api.FedAvg(), rounds=0))


@pytest.mark.parametrize(
    ("arguments", "nodes"),
    [
        ({"fraction_train": 0.5}, 10),
        ({"fraction_train": 0.1, "min_train_nodes": 3}, 10),
        ({"fraction_train": 0.35}, 10),
        ({"fraction_train": 0.0, "min_train_nodes": 3}, 10),
        ({"min_train_nodes": 1, "min_available_nodes": 1, "fraction_train": 0.01}, 5),
    ],
)
def test_how_many_nodes_are_sampled(arguments, nodes):
    def scenario(api):
        grid = CannedGrid(nodes, client)
        messages = api.FedAvg(**arguments).configure_train(1, record(MODEL), ConfigRecord(), grid)
        return len(list(messages))

    both(scenario)


# ---- replies ----------------------------------------------------------------------------------------


def each(messages, examples=lambda i: i + 1, metrics=lambda i: {}):
    """An answer to every message."""
    return [answer(m, trained(MODEL, i), examples(i), **metrics(i)) for i, m in enumerate(messages)]


def rebuilt(replies, change):
    """Replies made anew, with what ``change`` makes of their content."""
    return [Message(RecordDict(change(dict(one.content))), reply_to=one) for one in replies]


REPLIES = replies_of(each) | {
    "examples as floats": lambda m: each(m, lambda i: float(i + 1)),
    "one example": lambda m: each(m, lambda i: 1.0),
    "parts of an example": lambda m: each(m, lambda i: 0.3 + i),
    "list metrics": lambda m: each(m, metrics=lambda i: {"per": [1.0, float(i)], "none": []}),
    "integer metrics": lambda m: each(m, metrics=lambda i: {"hits": i, "each": [i, 1]}),
    "metrics that are no numbers": lambda m: each(m, metrics=lambda i: {"loss": float("nan")}),
    "one answer": lambda m: each(m)[2:3],
    "every one twice": lambda m: each(m) + each(m),
    "other names of the records": lambda m: rebuilt(
        each(m), lambda old: {"model": old["arrays"], "numbers": old["metrics"]}
    ),
    "a ConfigRecord beside": lambda m: rebuilt(each(m), lambda old: old | {"config": ConfigRecord({"a": 1})}),
}


@EACH_RULE
def test_replies(rule):
    for given in REPLIES.values():
        both(lambda api, given=given: phase(make(api, rule), given))


# ---- metric functions ---------------------------------------------------------------------------------


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


@pytest.mark.sampled(3)
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


# ---- aggregate_train without configure_train, as in unit tests ----------------------------------------


@pytest.mark.parametrize("rule", MEANS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_a_mean_of_mocks(rule, shape):
    values = [np.full(shape, v) for v in (0.5, 2.0, 1.0, 7.0)]
    both(lambda api: plain(make(api, rule).aggregate_train(1, mocks(values, [1, 5, 2, 9]))))


@pytest.mark.parametrize("rule", ["FedAvgM", "FedAdagrad", "FedYogi"])
def test_a_step_from_nowhere(rule):
    both_raise(AggregationError, lambda api: make(api, rule).aggregate_train(1, mocks([1.0, 2.0])))


def test_a_momentum_from_nowhere():
    """The first step is the mean, but the momentum that it would leave is of the whole model."""
    both_raise(
        AggregationError, lambda api: api.FedAvgM(server_momentum=0.9).aggregate_train(1, mocks([1.0]))
    )


@pytest.mark.parametrize("rule", ["FedAvgM", "FedAdagrad", "FedYogi"])
def test_the_model_set_by_hand(rule):
    """FedAvgM keeps an ArrayRecord there, the others a dict."""

    def scenario(api):
        strategy = make(api, rule)
        start = {"0": np.array([1.0, -2.0])}
        strategy.current_arrays = record(start) if rule == "FedAvgM" else start
        return plain(strategy.aggregate_train(1, mocks([[2.0, 3.0], [0.5, -2.0]], [1, 3])))

    both(scenario)


def test_empty_initial_arrays():
    """The clients bring the model."""

    def bringing(message, node):
        sent = ndarrays(message.content["arrays"])
        if message.metadata.message_type == "evaluate":
            return client(message, node)
        return answer(message, trained(sent or MODEL, node), node + 1)

    both(lambda api: run(api.FedAvg(), arrays={}, work=bringing))


@pytest.mark.parametrize("mu", [0.0, 0.1])
def test_a_fedprox_without_its_term_is_told_by_both(caplog, mu):
    for rules in (flower, strategies):
        caplog.clear()
        rules.FedProx(proximal_mu=mu)
        assert ("equivalent to FedAvg" in caplog.text) == (mu == 0)
