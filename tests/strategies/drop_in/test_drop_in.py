"""Flower's class and ours of the same name, put through the same: they cannot be told apart.

What can be told apart is in test_differences.py, and in docs/drop-in.md.
"""

import copy
import inspect

import flwr.serverapp.strategy as flower
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from ..helpers import CannedGrid, record
from .scenarios import (
    EACH_RULE,
    MEANS,
    MODEL,
    RULES,
    answer,
    both,
    both_raise,
    client,
    failed,
    make,
    phase,
    plain,
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
    """FedProx, FedMedian, FedTrimmedAvg are FedAvgs on either side."""
    both(lambda api: [issubclass(getattr(api, rule), api.FedAvg) for rule in MEANS])


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES if rule != "FedAvgM"]
)  # Flower's does not start again from a new model
def test_a_copy_goes_its_own_way(rule):
    def scenario(api):
        strategy = make(api, rule)
        run(strategy, rounds=1)
        twin = copy.deepcopy(strategy)
        return [run(strategy, rounds=2), run(twin, rounds=2)]

    both(scenario)


# ---- start ------------------------------------------------------------------------------------------


@EACH_RULE
def test_five_rounds_of_flowers_loop(rule):
    both(lambda api: run(make(api, rule), rounds=5))


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


def test_what_a_message_holds():
    def scenario(api):
        strategy = api.FedAvg(arrayrecord_key="model", configrecord_key="settings")
        found = []
        for configure in (strategy.configure_train, strategy.configure_evaluate):
            grid = CannedGrid(2, client)
            for message in configure(3, record(MODEL), ConfigRecord({"lr": 0.1}), grid):
                content = {name: plain(one) for name, one in message.content.items()}
                found.append([message.metadata.message_type, message.metadata.dst_node_id, content])
        return sorted(found, key=lambda one: one[:2])

    both(scenario)


# ---- replies ----------------------------------------------------------------------------------------


def each(messages, examples=lambda i: i + 1, metrics=lambda i: {}):
    """An answer to every message."""
    return [answer(m, trained(MODEL, i), examples(i), **metrics(i)) for i, m in enumerate(messages)]


def rebuilt(replies, change):
    """Replies made anew, with what ``change`` makes of their content."""
    return [Message(RecordDict(change(dict(one.content))), reply_to=one) for one in replies]


REPLIES = {
    "examples as floats": lambda m: each(m, lambda i: float(i + 1)),
    "one example": lambda m: each(m, lambda i: 1.0),
    "parts of an example": lambda m: each(m, lambda i: 0.3 + i),
    "list metrics": lambda m: each(m, metrics=lambda i: {"per": [1.0, float(i)], "none": []}),
    "integer metrics": lambda m: each(m, metrics=lambda i: {"hits": i, "each": [i, 1]}),
    "metrics that are no numbers": lambda m: each(m, metrics=lambda i: {"loss": float("nan")}),
    "some errors": lambda m: [failed(m[0]), *each(m)[1:]],
    "one answer": lambda m: each(m)[2:3],
    "all errors": lambda m: [failed(one) for one in m],
    "none": lambda m: [],
    "a generator": lambda m: (one for one in each(m)),
    "in another order": lambda m: [each(m)[i] for i in (2, 0, 3, 1)],
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
