"""Who is asked in a round, and in what order."""

import re

import numpy as np
from flwr.app import ConfigRecord
from hypothesis import given
from hypothesis import strategies as st

from strategies import FedAvg, RuleState
from strategies.messages.nodes import sample, sample_size

from ..helpers import CannedGrid, record, train_reply


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
    drawn = asked(FedAvg(fraction_train=0.1, fraction_evaluate=0.5, seed=0), starts=30)
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
