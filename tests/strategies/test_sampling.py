"""Who is asked in a round, and in what order."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from strategies import FedAvg
from strategies.nodes import sample

from .helpers import CannedGrid, record


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
def test_the_sample_has_the_size_asked_for(n, percent):
    chosen = sample(list(range(n)), percent / 100, 1, (0,))
    assert len(chosen) == max(1, n * percent // 100)
    assert len(set(chosen)) == len(chosen)


def test_nodes_that_tell_no_partition_are_ordered_by_node_id():
    assert sampled(FedAvg(), CannedGrid(5, lambda m, i: None, tells_partition=False)) == [0, 1, 2, 3, 4]


def test_nodes_are_ordered_by_the_partition_they_tell():
    class Shuffled(CannedGrid):
        def work(self, messages, timeout):
            for message in messages:
                partition = 4 - message.metadata.dst_node_id
                answer = RecordDict({"partition": ConfigRecord({"partition-id": partition})})
                yield Message(answer, reply_to=message)

    assert sampled(FedAvg(ask_partitions=True), Shuffled(5, lambda m, i: None)) == [4, 3, 2, 1, 0]


def test_waiting_for_nodes_is_bounded():
    told = r"waited 0 s for 3 nodes \(round 1, train: min_available_nodes\); 2 connected"
    with pytest.raises(TimeoutError, match=told):
        sampled(FedAvg(min_available_nodes=3, node_timeout=0.0), CannedGrid(2, lambda m, i: None))


def test_a_fraction_of_zero_skips_the_phase():
    strategy = FedAvg(fraction_evaluate=0.0)
    assert sampled(strategy, CannedGrid(3, lambda m, i: None), phase="evaluate") == []
    assert strategy.aggregate_evaluate(1, []) is None
    assert not strategy.phase_report.failures
