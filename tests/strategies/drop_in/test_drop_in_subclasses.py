"""Subclasses written for Flower's classes do the same on ours (see subclasses.py)."""

import inspect
import random
from dataclasses import dataclass
from functools import partialmethod

import pytest
from flwr.app import ConfigRecord, Message, RecordDict

import strategies

from ..helpers import CannedGrid, record
from .scenarios import APIS, MEANS, MODEL, RULES, answer, assert_same, client, failed, plain, run, trained
from .subclasses import BODIES, buffered, changed_result, other_content_for_each_node, own_messages, schedule


def subclass(api, rule, body):
    """A subclass of the rule with the methods that ``body(rule)`` gives."""
    base = getattr(api, rule)
    return type(f"My{rule}", (base,), body(base))


def both(body, rule="FedAvg", then=run, **arguments):
    """The same subclass of Flower's class and of ours gives the same run."""
    found = []
    for api in APIS:
        cls = subclass(api, rule, body)
        given = RULES[rule] | arguments
        if rule == "FedYogi" and api is strategies:
            given = given | {"bias_correction": False}
        found.append(then(cls(**given)))
    assert_same(*found)


NOT_FLOWERS = {  # told in test_differences.py
    (changed_result, "FedAvgM"),  # goes on from its own result, not from what is sent
    (buffered, "FedMedian"),  # empties the replies that it is given
    (buffered, "FedTrimmedAvg"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("body", BODIES)
def test_an_overridden_method(body):
    """By turns of both kinds of rules that keep the model that was sent, and of a mean that does not."""
    place = BODIES.index(body)
    for rules in (("FedAvgM", "FedYogi"), MEANS):
        goes = [rule for rule in rules if (body, rule) not in NOT_FLOWERS]
        both(body, goes[place % len(goes)])


@pytest.mark.parametrize(
    ("rule", "setting"), [("FedAdagrad", "eta"), ("FedYogi", "beta_1"), ("FedAvgM", "server_learning_rate")]
)
def test_a_schedule_of_the_servers_own(rule, setting):
    def body(base):
        def configure_train(self, server_round, arrays, config, grid):
            setattr(self, setting, getattr(self, setting) * 0.5)
            return base.configure_train(self, server_round, arrays, config, grid)

        return {"configure_train": configure_train}

    both(body, rule)


def test_what_a_subclass_sends_to_its_clients_arrives():
    def then(strategy):
        output = []

        def listening(message, node):
            output.append((message.metadata.message_type, node, plain(message.content["config"])))
            return client(message, node)

        run(strategy, rounds=2, work=listening)
        return sorted(output, key=str)

    for body in (schedule, other_content_for_each_node, own_messages):
        both(body, then=then)


# ---- attributes and mixins --------------------------------------------------------------------------

BY_CHANCE = [
    "step", "state", "nodes", "report", "eta", "momentum", "seed", "mean", "trim", "history", "round",
    "rounds", "settings", "rule", "phase", "best", "model", "models", "arrays", "buffer", "clients",
    "replies", "weights", "server_round", "num_rounds", "results", "metrics", "config", "device", "lr",
    "log", "min_replies", "requires", "trainable", "tau", "beta_1", "update", "updates", "layout",
    "extras", "max_weight", "node_timeout", "delta", "velocity", "_step", "_state", "_nodes", "_round",
    "_replies", "_history", "_best", "_buffer", "_model", "_messages", "_results", "_metrics", "_arrays",
    "_log", "_phase", "_mean", "_seed", "_eta", "_momentum", "_trim", "_min_replies", "_max_weight",
    "_node_timeout", "_train_phase", "_connected_nodes", "_trainable_names", "_configure", "_updated",
    "_screened", "_read_evaluate", "current_arrays",
]  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize("rule", MEANS)
@pytest.mark.parametrize("how", ["attribute", "class attribute", "method"])
def test_names_a_subclass_takes_by_chance(rule, how):
    """Each of them, on classes that have no such argument."""

    def body(base):
        if how == "class attribute":
            return dict.fromkeys(BY_CHANCE, "mine")
        if how == "method":
            return dict.fromkeys(BY_CHANCE, lambda self: "mine")

        def __init__(self, **kwargs):
            for name in BY_CHANCE:
                setattr(self, name, "mine")
            super(self.__class__, self).__init__(**kwargs)
            for name in BY_CHANCE:
                setattr(self, name, "mine")

        return {"__init__": __init__}

    def then(strategy):
        mine = [getattr(strategy, name) for name in BY_CHANCE]
        assert all(one == "mine" for one in mine) or how == "method"
        return run(strategy)

    both(body, rule, then)


def test_a_setting_behind_a_property():
    """With a setter it is set, like any other attribute."""

    def body(base):
        halved = property(lambda self: 0.5 * self.given, lambda self, value: setattr(self, "given", value))
        return {"eta": halved}

    both(body, "FedAdagrad")


def test_annotations_that_only_a_type_checker_knows():
    def body(base):
        return {"__annotations__": {"path": "Path", "best": "NotYetDefined | None"}, "best": None}

    both(body)


def test_a_dataclass():
    def then(strategy):
        cls = dataclass(type(strategy))
        assert list(inspect.signature(cls).parameters) == ["path"]
        return [cls("there").path, run(cls("there"))]

    def body(base):
        return {
            "__annotations__": {"path": "str"},
            "path": "here",
            "__post_init__": lambda self: base.__init__(self, fraction_evaluate=0.0),
        }

    both(body, then=then)


def test_a_constructor_that_is_a_partial_method():
    both(lambda base: {"__init__": partialmethod(base.__init__, fraction_evaluate=0.0)})


# ---- several aggregations in one round --------------------------------------------------------------


@pytest.mark.parametrize("rule", MEANS)
def test_clusters(rule):
    """`aggregate_train` for each cluster of the same round's replies."""

    def then(strategy):
        grid = CannedGrid(6, client, tells_partition=False)
        messages = list(strategy.configure_train(1, record(MODEL), ConfigRecord(), grid))
        replies = list(grid.send_and_receive(messages))
        clusters = [
            [reply for reply in replies if reply.metadata.src_node_id in nodes]
            for nodes in ([0, 1, 2], [3, 4, 5], [1, 4])
        ]
        if rule in ("FedMedian", "FedTrimmedAvg"):  # Flower's empty the replies they are given
            clusters = clusters[:2]
        return [plain(strategy.aggregate_train(1, cluster)) for cluster in clusters]

    both(lambda base: {}, rule, then)


def test_a_node_in_another_cluster_did_not_fail():
    strategy, grid = strategies.FedAvg(), CannedGrid(4, client)
    messages = strategy.configure_train(1, record(MODEL), ConfigRecord(), grid)
    replies = list(grid.send_and_receive(messages))
    for cluster in (replies[:2], replies[2:]):
        strategy.aggregate_train(1, cluster)
    assert not strategy.phase_report.failures
    assert sorted(strategy.phase_report.metrics) == [0, 1, 2, 3]


def test_a_message_that_was_not_sent_is_not_late():
    strategy, grid = strategies.FedAvg(), CannedGrid(4, client)
    messages = strategy.configure_train(1, record(MODEL), ConfigRecord(), grid)
    strategy.aggregate_train(1, grid.send_and_receive(list(messages)[:2]))
    assert not strategy.phase_report.failures


def test_replies_in_any_order_to_anybodys_messages():
    """Nothing is known of the messages: neither who was asked nor in which order."""

    def then(strategy):
        grid = CannedGrid(9, client, tells_partition=False)
        strategy.configure_train(1, record(MODEL), ConfigRecord(), grid)
        own = [Message(RecordDict(), dst_node_id=node, message_type="train") for node in range(20, 29)]
        replies = [answer(one, trained(MODEL, i), i + 1) for i, one in enumerate(own)]
        replies[3] = failed(own[3])
        random.Random(0).shuffle(replies)
        return plain(strategy.aggregate_train(1, replies))

    both(lambda base: {}, then=then)
