"""Malformed answers of every kind: none changes the model by a bit, none ends the run, all are counted."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from strategies import FedAvg, ReplyRefused
from strategies.messages.validation import check_entries

from ..helpers import OF_MODELS, CannedGrid, record, train_reply
from .lies import CONTENT_LIES, ENTRY_LIES, EXPLODED, MESSAGE_LIES, MODEL, RULE_LIES, lie_of

HONEST, LIARS = 3, 40
READ_MORE = {name for name, rule in OF_MODELS.items() if rule.read_extras is not FedAvg.read_extras}
COMBINATIONS = [("fednova", "median"), *((rule, "weighted") for rule in sorted(READ_MORE | {"fedavg"}))]
"""All that read no more than a model from an answer are as FedAvg here."""


def model_of(partition, server_round):
    rng = np.random.default_rng([partition, server_round])
    return {
        name: (rng.random(array.shape) * 3 + array).astype(array.dtype) for name, array in MODEL.items()
    }  # fmt: skip


def second_round(rule, mean, lies, honest):
    """A strategy after two rounds, the second with these lies: it, and the model or None."""
    cls = OF_MODELS[rule]
    strategy, extra = cls(mean=mean, trim=0.34), []
    grid = CannedGrid(HONEST + LIARS, None)

    def client(server_round, message, partition):
        if partition < HONEST:
            answers = server_round == 1 or honest
            return train_reply(message, model_of(partition, server_round), partition + 1) if answers else None
        if server_round == 1 or partition - HONEST >= len(lies):
            return None
        replies = lie_of(*lies[partition - HONEST], message)
        extra.extend(replies[1:])
        return replies[0] if replies else None

    arrays = record(MODEL)
    for server_round in (1, 2):
        grid.client = lambda m, i, t=server_round: client(t, m, i)
        messages = strategy.configure_train(server_round, arrays, ConfigRecord(), grid)
        replies = list(grid.send_and_receive(messages))
        updated, _ = strategy.aggregate_train(server_round, replies + extra)
        arrays = updated or arrays
    return strategy, updated


def state_bits(strategy):
    return {
        name: vector.tobytes() for name, vector in strategy.rule_state.vectors.items()
    }, strategy.rule_state.updates


@pytest.mark.parametrize(("rule", "mean"), COMBINATIONS)
def test_a_malformed_answer_costs_itself_and_nothing_else(rule, mean):
    """With honest ones the model has the bits that it has of these alone; without, nothing changes.

    A rule's own kinds thrice, and others once, of another seed with each rule.
    """
    seed = COMBINATIONS.index((rule, mean))
    lies = [(kind, seed) for kind in (*ENTRY_LIES, *CONTENT_LIES, *MESSAGE_LIES)]
    lies += each_three_times(RULE_LIES.get(rule, {}))
    for honest in (True, False):
        expected, unharmed = second_round(rule, mean, [], honest)
        strategy, updated = second_round(rule, mean, lies, honest)
        answered, failures = set(range(HONEST)) if honest else set(), strategy.phase_report.failures
        assert not [lie for i, lie in enumerate(lies, start=HONEST) if i not in failures]
        assert [(n, a.data) for n, a in (updated or {}).items()] == [
            (n, a.data) for n, a in (unharmed or {}).items()
        ]
        assert bool(updated) == honest
        assert state_bits(strategy) == state_bits(expected)
        assert set(strategy.phase_report.metrics) == answered
        assert failures.keys() == set(range(HONEST + LIARS)) - answered
        assert all(reason and len(reason) <= 500 for reason in failures.values())
    assert not EXPLODED


def each_three_times(kinds):
    return [(kind, seed) for kind in kinds for seed in range(3)]


def test_an_evaluation_cannot_be_spoilt_either():
    checked_by_rules, extra = {"no arrays", "wrong arrays", "renamed", "extra name", "huge weight"}, []
    lies = each_three_times([*(CONTENT_LIES.keys() - checked_by_rules), *MESSAGE_LIES])

    def client(message, partition):
        if partition < HONEST:
            found = MetricRecord({"num-examples": partition + 1, "loss": float(partition)})
            return Message(RecordDict({"metrics": found}), reply_to=message)
        replies = lie_of(*lies[partition - HONEST], message)
        extra.extend(replies[1:])
        return replies[0] if replies else None

    strategy, grid = OF_MODELS["fedavg"](), CannedGrid(HONEST + len(lies), client)
    messages = strategy.configure_evaluate(1, record(MODEL), ConfigRecord(), grid)
    mean = strategy.aggregate_evaluate(1, list(grid.send_and_receive(messages)) + extra)
    assert dict(mean) == {"loss": pytest.approx((0 * 1 + 1 * 2 + 2 * 3) / 6)}
    assert set(strategy.phase_report.failures) == set(range(HONEST, HONEST + len(lies)))


@pytest.mark.parametrize("rule", ["fednova", "scaffold"])
def test_without_its_lie_an_answer_is_good(rule, monkeypatch):
    """So it is the lies that are refused above, not what they are made from."""
    monkeypatch.setitem(CONTENT_LIES, "truth", lambda rng, content: None)
    strategy, _ = second_round(rule, "weighted", [("truth", 0)], honest=True)
    assert set(strategy.phase_report.metrics) == set(range(HONEST + 1))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [1e300, 2e38, np.inf, np.nan], ids=str)
def test_a_number_that_is_too_large_is_refused_without_a_warning(value):
    """As float64 it may be so large that it becomes infinite in the model's dtype."""
    reference = {"w": np.zeros(3, np.float32)}
    with pytest.raises(ReplyRefused, match="^w: "):
        check_entries({"w": np.array([0, value, value])}, reference)
    assert check_entries({"w": np.ones(3)}, reference)["w"].dtype == np.float32
