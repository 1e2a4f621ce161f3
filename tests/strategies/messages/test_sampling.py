"""Who is asked in a round, in what order, and who takes part."""

import logging
import re

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from strategies import FedAvg, FedAvgM, FedDyn, RuleState
from strategies.messages.nodes import Everybody, sample, sample_size

from ..helpers import CannedGrid, ndarrays, record, train, train_reply


def sampled(strategy, grid, server_round=1, phase="train"):
    configure = getattr(strategy, f"configure_{phase}")
    messages = configure(server_round, record({"w": np.zeros(1, np.float32)}), ConfigRecord(), grid)
    return [m.metadata.dst_node_id for m in messages]


def test_sampling_depends_on_seed_and_round_alone():
    grid = CannedGrid(20, lambda m, i: None)
    draws = [sampled(FedAvg(fraction_train=0.25, seed=s), grid, r) for s in (0, 1) for r in (1, 2)]
    again = [sampled(FedAvg(fraction_train=0.25, seed=s), grid, r) for s in (0, 1) for r in (1, 2)]
    assert draws == again
    assert len({tuple(d) for d in draws}) == 4
    assert all(len(d) == 5 and d == sorted(d) for d in draws)


@given(n=st.integers(1, 300), percent=st.integers(0, 100))
def test_the_sample_has_the_size_requested(n, percent):
    chosen = sample(list(range(n)), sample_size(n, percent / 100, 1), (0,))
    assert len(chosen) == max(1, n * percent // 100)
    assert len(set(chosen)) == len(chosen)


# ---- several starts ---------------------------------------------------------------------------------


def asked(strategy, starts, rounds=1, nodes=20, **arguments):
    """Which nodes each training phase of so many starts asked."""
    phases = []

    def client(message, node):
        phases[-1].append(node) if message.metadata.message_type == "train" else None
        return train_reply(message, {"w": np.zeros(1, np.float32)})

    class Watched(CannedGrid):
        def send_and_receive(self, messages, *, timeout=None):
            phases.append([])
            return super().send_and_receive(messages, timeout=timeout)

    for _ in range(starts):
        strategy.start(Watched(nodes, client), record({"w": np.zeros(1, np.float32)}), rounds, **arguments)
    return [nodes for nodes in phases if nodes]


def test_a_loop_of_starts_does_not_ask_the_same_nodes_for_ever():
    """As many of 20 as 30 draws of two give: 20 (1 - 0.9^30) = 19 are expected."""
    drawn = asked(FedAvg(fraction_train=0.1, fraction_evaluate=0.0, seed=0), starts=30)
    assert len(drawn) == 30
    assert len({node for nodes in drawn for node in nodes}) >= 17


def test_starts_go_on_where_the_last_one_ended():
    whole = asked(FedAvg(fraction_train=0.25, seed=3), starts=1, rounds=6)
    parts = FedAvg(fraction_train=0.25, seed=3)
    assert asked(parts, 2) + asked(parts, 1, rounds=4) == whole


def test_evaluation_draws_go_on_too():
    strategy, grid = FedAvg(fraction_evaluate=0.5, seed=0), CannedGrid(20, lambda m, i: None)
    drawn = [sampled(strategy, grid, 1, "evaluate") for _ in range(4)]
    assert len(set(map(tuple, drawn))) == 4
    assert sampled(strategy, grid, 9, "evaluate") == sampled(
        FedAvg(fraction_evaluate=0.5, seed=0), grid, 9, "evaluate"
    )


def test_the_draws_are_of_the_state_that_may_be_saved():
    strategy = FedAvg(fraction_train=0.25, seed=3)
    first = asked(strategy, 1, rounds=2)
    resumed = FedAvg(fraction_train=0.25, seed=3)
    resumed.rule_state = RuleState(strategy.rule_state.updates, {}, dict(strategy.rule_state.draws))
    assert first + asked(resumed, 1, rounds=2) == asked(FedAvg(fraction_train=0.25, seed=3), 1, rounds=4)


def test_without_a_seed_each_strategy_draws_its_own(caplog):
    grid = CannedGrid(300, lambda m, i: None)
    strategy = FedAvg(fraction_train=0.5)
    drawn = sampled(strategy, grid)
    assert drawn != sampled(FedAvg(fraction_train=0.5), grid)
    with caplog.at_level("INFO", "flwr"):
        strategy.summary()
    (output,) = re.findall(r"seed: (\d+)", caplog.text)  # with which it can be had again
    assert sampled(FedAvg(fraction_train=0.5, seed=int(output)), grid) == drawn


# ---- who takes part, and a round in which nobody does -------------------------------------------------


TWO_ZEROS = {"w": np.zeros(2, np.float32)}


class Of(Everybody):
    """Those of a set are there in every round, those of another answer."""

    def __init__(self, there, answering):
        self.there, self.answering = set(there), set(answering)

    def available(self, server_round, partition):
        return partition in self.there

    def answers(self, server_round, partition):
        return partition in self.answering


def rule(there, answering, cls=FedAvg, **settings):
    strategy = cls(ask_partitions=True, **settings)
    strategy.node_participation = Of(there, answering)
    return strategy


def one_round(strategy, count):
    """Client i answers with a model moved by i + 1."""
    grid = CannedGrid(count, lambda m, i: train_reply(m, {"w": TWO_ZEROS["w"] + i + 1}))
    return train(strategy, TWO_ZEROS, grid)


def test_those_who_are_there_are_sampled_from_to_train_and_to_evaluate():
    """Half of the six of ten that are there."""
    strategy = rule(range(4, 10), range(10), seed=0, fraction_train=0.5, fraction_evaluate=0.5)
    grid = CannedGrid(10, lambda m, i: None)
    for phase in ("train", "evaluate"):
        draws = [sampled(strategy, grid, server_round, phase) for server_round in range(1, 9)]
        assert {len(draw) for draw in draws} == {3}
        assert set().union(*draws) == set(range(4, 10))


def test_those_who_do_not_answer_are_not_sampled():
    strategy, grid = rule(range(6), [1, 4]), CannedGrid(6, lambda m, i: None)
    assert sampled(strategy, grid) == [1, 4]
    assert sampled(strategy, grid, phase="evaluate") == [0, 1, 2, 3, 4, 5]


def test_who_is_busy_is_not_sampled():
    strategy, grid = rule(range(5), range(6)), CannedGrid(6, lambda m, i: None)
    strategy.node_directory.busy = {1, 5}
    for phase in ("train", "evaluate"):
        assert sampled(strategy, grid, phase=phase) == [0, 2, 3, 4]


def test_a_nodes_partition_is_what_is_requested():
    class Reversed(CannedGrid):
        def work(self, messages, timeout):
            for message in messages:
                partition = 4 - message.metadata.dst_node_id
                answer = RecordDict({"partition": ConfigRecord({"partition-id": partition})})
                yield Message(answer, reply_to=message)

    assert sampled(rule([0, 1, 2], [1, 2, 3]), Reversed(5, lambda m, i: None)) == [3, 2]


def test_the_mean_is_over_those_who_answered(caplog):
    """Moved by 2 and 5 of 1, ..., 6; nobody failed."""
    caplog.set_level(logging.INFO, "flwr")
    strategy = rule([0, 1, 2, 4, 5], [1, 3, 4])
    updated, _ = one_round(strategy, 6)
    np.testing.assert_array_equal(ndarrays(updated)["w"], 3.5)
    assert strategy.phase_report.failures == {}
    assert "round 1, train: 1 of 6 nodes unavailable, 3 of 5 sampled will not answer" in caplog.messages


def test_all_clients_are_all_that_are_connected():
    """FedDyn, M = 4, alpha = 1, one answer of difference 1: h = -1/4, x = 1 + 1/4."""
    updated, _ = one_round(rule([0, 1], [0, 2], FedDyn, alpha=1.0), 4)
    np.testing.assert_array_equal(ndarrays(updated)["w"], 1.25)


class Outside(Everybody):
    """Clients 0 and 2 have no part in it."""

    def takes_part(self, partition):
        return partition not in (0, 2)


def test_who_takes_no_part_is_not_counted_nor_reported(caplog):
    """FedDyn of three, alpha = 1, that answer with a difference of 2, 4 and 5: their mean is 11/3, M and the
    number of answers are 3, so h = -11/3 and x = 22/3."""
    caplog.set_level(logging.INFO, "flwr")
    strategy = FedDyn(ask_partitions=True, alpha=1.0)
    strategy.node_participation = Outside()
    updated, _ = one_round(strategy, 5)
    np.testing.assert_allclose(ndarrays(updated)["w"], 22 / 3, rtol=1e-6)
    assert not any("unavailable" in line for line in caplog.messages)
    strategy = FedAvg(ask_partitions=True, fraction_train=0.5, fraction_evaluate=1.0)
    strategy.node_participation = Outside()
    assert len(sampled(strategy, CannedGrid(5, lambda m, i: None))) == 2  # min_train_nodes
    assert sampled(strategy, CannedGrid(5, lambda m, i: None), phase="evaluate") == [1, 3, 4]


def test_a_round_with_nobody_leaves_everything_as_it_was(caplog):
    for there, answering, output in (
        ([], range(3), "3 of 3 nodes unavailable, 0 of 0 sampled will not answer"),
        (range(3), [], "0 of 3 nodes unavailable, 3 of 3 sampled will not answer"),
    ):
        caplog.clear()
        strategy = rule(there, answering, FedAvgM, server_momentum=0.9)
        assert one_round(strategy, 3) == (None, None)
        assert (strategy.rule_state.updates, strategy.rule_state.vectors) == (0, {})
        assert not strategy.phase_report.failures
        warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        assert warnings == [f"round 1, train: {output}: the model is unchanged"]
    assert sampled(rule([], []), CannedGrid(3, lambda m, i: None), phase="evaluate") == []


def test_by_default_all_take_part_and_nothing_is_said(caplog):
    caplog.set_level(logging.INFO, "flwr")
    assert sampled(FedAvg(), CannedGrid(3, lambda m, i: None)) == [0, 1, 2]
    assert not any("unavailable" in line for line in caplog.messages)
