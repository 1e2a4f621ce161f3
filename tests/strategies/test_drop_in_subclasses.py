"""Subclasses written for Flower's classes do the same on ours."""

import random

import flwr.serverapp.strategy as flower
import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

import strategies

from .helpers import CannedGrid, ndarrays, record
from .scenarios import MEANS, MODEL, RULES, answer, assert_same, client, failed, make, plain, run, trained


def subclass(api, rule, body):
    """A subclass of the rule with the methods that ``body(rule)`` gives."""
    base = getattr(api, rule)
    return type(f"My{rule}", (base,), body(base))


def both(body, rule="FedAvg", then=run, **arguments):
    """The same subclass of Flower's class and of ours gives the same run."""
    found = []
    for api in (flower, strategies):
        cls = subclass(api, rule, body)
        given = RULES[rule] | arguments
        if rule == "FedYogi" and api is strategies:
            given = given | {"bias_correction": False}
        found.append(then(cls(**given)))
    assert_same(*found)


# ---- what is overridden -----------------------------------------------------------------------------


def schedule(base):
    """Tells the clients a learning rate of the round."""

    def configure_train(self, server_round, arrays, config, grid):
        config["lr"] = 0.1 * 0.5 ** (server_round - 1)
        return base.configure_train(self, server_round, arrays, config, grid)

    return {"configure_train": configure_train}


def half_of_the_messages(base):
    def configure_train(self, server_round, arrays, config, grid):
        messages = base.configure_train(self, server_round, arrays, config, grid)
        return [message for message in messages if message.metadata.dst_node_id % 2 == server_round % 2]

    return {"configure_train": configure_train}


def other_content_for_each_node(base):
    """A model of its own for every node, as with personal or pruned models."""

    def configure_train(self, server_round, arrays, config, grid):
        messages = []
        for message in base.configure_train(self, server_round, arrays, config, grid):
            node = message.metadata.dst_node_id
            own = {name: array * np.float32(1 + 0.1 * node) for name, array in ndarrays(arrays).items()}
            told = ConfigRecord({**config, "node": node})
            content = RecordDict({"arrays": record(own), "config": told})
            messages.append(Message(content, dst_node_id=node, message_type="train"))
        return messages

    return {"configure_train": configure_train}


def other_nodes(base):
    """More messages than were sampled, and to other nodes."""

    def configure_train(self, server_round, arrays, config, grid):
        base.configure_train(self, server_round, arrays, config, grid)
        content = RecordDict({"arrays": arrays, "config": config})
        return [Message(content, dst_node_id=node, message_type="train") for node in range(6)]

    return {"configure_train": configure_train}


def nothing_of_the_super_class(base):
    """Its own sampling, without a word to the base class."""

    def configure_train(self, server_round, arrays, config, grid):
        self.current_arrays = record(ndarrays(arrays)) if base.__name__ == "FedAvgM" else ndarrays(arrays)
        config["server-round"] = server_round
        content = RecordDict({"arrays": arrays, "config": config})
        return self._construct_messages(content, sorted(grid.get_node_ids())[:3], "train")

    return {"configure_train": configure_train}


def second_round_only(base):
    def configure_evaluate(self, server_round, arrays, config, grid):
        if server_round % 2:
            return []
        return base.configure_evaluate(self, server_round, arrays, config, grid)

    return {"configure_evaluate": configure_evaluate}


def filtered(base):
    """Only replies of a low loss count."""

    def aggregate_train(self, server_round, replies):
        good = [reply for reply in replies if reply.content["metrics"]["loss"] < 0.9]
        return base.aggregate_train(self, server_round, good)

    return {"aggregate_train": aggregate_train}


def buffered(base):
    """Aggregates the replies of the round before too, as an asynchronous server."""

    def aggregate_train(self, server_round, replies):
        replies, before = list(replies), getattr(self, "buffer", [])
        self.buffer = replies
        return base.aggregate_train(self, server_round, before + replies)

    return {"aggregate_train": aggregate_train}


def late(base):
    """Aggregates the replies of the round before alone."""

    def aggregate_train(self, server_round, replies):
        before, self.buffer = getattr(self, "buffer", []), list(replies)
        return base.aggregate_train(self, server_round, before)

    return {"aggregate_train": aggregate_train}


def reweighted(base):
    """Replies made anew with other weights."""

    def aggregate_train(self, server_round, replies):
        made = []
        for reply in replies:
            told = MetricRecord(
                {**reply.content["metrics"], "num-examples": 1.0 + reply.metadata.src_node_id}
            )
            content = RecordDict({"arrays": reply.content["arrays"], "metrics": told})
            made.append(Message(content, dst_node_id=1, message_type="train"))
        return base.aggregate_train(self, server_round, made)

    return {"aggregate_train": aggregate_train}


def changed_result(base):
    """Keeps the best, adds a metric, and moves the result."""

    def aggregate_train(self, server_round, replies):
        arrays, metrics = base.aggregate_train(self, server_round, replies)
        metrics["lowest"] = min(getattr(self, "lowest", 9.0), metrics["loss"])
        self.lowest = metrics["lowest"]
        return record({name: array * np.float32(0.5) for name, array in ndarrays(arrays).items()}), metrics

    return {"aggregate_train": aggregate_train}


def own_evaluation(base):
    def aggregate_evaluate(self, server_round, replies):
        replies = list(replies)
        metrics = base.aggregate_evaluate(self, server_round, replies)
        metrics["worst"] = max(reply.content["metrics"]["loss"] for reply in replies)
        return metrics

    return {"aggregate_evaluate": aggregate_evaluate}


def helpers_of_flower(base):
    """Aggregates by itself, with the helpers of Flower's FedAvg."""

    def aggregate_train(self, server_round, replies):
        valid, errors = self._check_and_log_replies(replies, is_train=True)
        contents = [reply.content for reply in valid]
        metrics = self.train_metrics_aggr_fn(contents, self.weighted_by_key)
        metrics["failures"] = len(errors)
        return min(contents, key=lambda one: one["metrics"]["loss"])["arrays"], metrics

    return {"aggregate_train": aggregate_train}


def own_check(base):
    """Replaces what the base class does with the replies first."""

    def _check_and_log_replies(self, replies, is_train, validate=True):
        valid, errors = base._check_and_log_replies(self, replies, is_train, validate)
        return sorted(valid, key=lambda reply: reply.metadata.src_node_id)[1:], errors

    return {"_check_and_log_replies": _check_and_log_replies}


def own_messages(base):
    def _construct_messages(self, record, node_ids, message_type):
        told = ConfigRecord({**record["config"], "of": len(node_ids)})
        content = RecordDict({"arrays": record["arrays"], "config": told})
        return base._construct_messages(self, content, sorted(node_ids)[:3], message_type)

    return {"_construct_messages": _construct_messages}


def own_start(base):
    def start(self, grid, initial_arrays, num_rounds=3, **more):
        halved = {name: array / np.float32(2) for name, array in ndarrays(initial_arrays).items()}
        return base.start(self, grid, record(halved), num_rounds + 1, **more)

    return {"start": start}


def own_summary(base):
    def summary(self):
        base.summary(self)
        self.said = True

    return {"summary": summary}


def own_constructor(base):
    def __init__(self, *args, patience=3, **kwargs):
        super(self.__class__, self).__init__(*args, **kwargs)
        self.patience = patience

    return {"__init__": __init__}


def later_settings(base):
    """Changes its own settings between rounds."""

    def configure_train(self, server_round, arrays, config, grid):
        self.min_train_nodes = 4
        self.weighted_by_key = "steps" if server_round == 2 else "num-examples"
        return base.configure_train(self, server_round, arrays, config, grid)

    def configure_evaluate(self, *given):
        self.weighted_by_key = "num-examples"
        return base.configure_evaluate(self, *given)

    return {"configure_train": configure_train, "configure_evaluate": configure_evaluate}


BODIES = [
    schedule, half_of_the_messages, other_content_for_each_node, other_nodes, nothing_of_the_super_class,
    second_round_only, filtered, buffered, late, reweighted, changed_result, own_evaluation,
    helpers_of_flower, own_check, own_messages, own_start, own_summary, own_constructor, later_settings,
]  # fmt: skip


NOT_FLOWERS = {  # told in test_differences.py
    (changed_result, "FedAvgM"),  # goes on from its own result, not from what is sent
    (buffered, "FedMedian"),  # empties the replies that it is given
    (buffered, "FedTrimmedAvg"),
}


@pytest.mark.parametrize(
    ("body", "rule"), [(body, rule) for body in BODIES for rule in RULES if (body, rule) not in NOT_FLOWERS]
)
def test_an_overridden_method(body, rule):
    both(body, rule)


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


def test_what_a_subclass_tells_its_clients_arrives():
    def then(strategy):
        told = []

        def listening(message, node):
            told.append((message.metadata.message_type, node, plain(message.content["config"])))
            return client(message, node)

        run(strategy, rounds=2, work=listening)
        return sorted(told, key=str)

    for body in (schedule, other_content_for_each_node, own_messages):
        both(body, then=then)


# ---- attributes and mixins --------------------------------------------------------------------------

BY_CHANCE = [
    "step", "state", "nodes", "report", "eta", "momentum", "seed", "mean", "trim", "history", "round", "rounds",
    "settings", "rule", "phase", "best", "model", "models", "arrays", "buffer", "clients", "replies", "weights",
    "server_round", "num_rounds", "results", "metrics", "config", "device", "lr", "log", "min_replies", "requires",
    "trainable", "tau", "beta_1", "update", "updates", "layout", "extras", "max_weight", "node_timeout", "delta",
    "velocity", "_step", "_state", "_nodes", "_round", "_replies", "_history", "_best", "_buffer", "_model",
]  # fmt: skip


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


def test_a_mixin():
    class Saving:
        def aggregate_train(self, server_round, replies):
            arrays, metrics = super().aggregate_train(server_round, replies)
            self.saved = {**getattr(self, "saved", {}), server_round: plain(arrays)}
            return arrays, metrics

    found = []
    for api in (flower, strategies):
        strategy = type("Mine", (Saving, api.FedAvg), {})()
        found.append([run(strategy), strategy.saved])
    assert_same(*found)


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


def test_one_strategy_within_another():
    """A Flower Strategy that hands everything on."""

    class Wrapper(flower.Strategy):
        def __init__(self, strategy):
            self.strategy = strategy

        def configure_train(self, server_round, arrays, config, grid):
            return self.strategy.configure_train(server_round, arrays, config, grid)

        def aggregate_train(self, server_round, replies):
            return self.strategy.aggregate_train(
                server_round, [one for one in replies if not one.has_error()]
            )

        def configure_evaluate(self, server_round, arrays, config, grid):
            return self.strategy.configure_evaluate(server_round, arrays, config, grid)

        def aggregate_evaluate(self, server_round, replies):
            return self.strategy.aggregate_evaluate(server_round, replies)

        def summary(self):
            self.strategy.summary()

    for rule in RULES:
        assert_same(*(run(Wrapper(make(api, rule))) for api in (flower, strategies)))


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
