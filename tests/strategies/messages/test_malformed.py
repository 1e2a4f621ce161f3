"""Thousands of malformed answers: none changes the model by a bit, none ends the run, all are counted."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from strategies import FedAvg, ReplyRefused
from strategies.messages.validation import check_entries

from ..helpers import OF_MODELS, CannedGrid, record, train_reply
from .lies import CONTENT_LIES, ENTRY_LIES, EXPLODED, MESSAGE_LIES, MODEL, RULE_LIES, lie_of

HONEST, LIARS, ROUNDS = 3, 50, 6
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


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "mean"), COMBINATIONS)
def test_a_malformed_answer_costs_itself_and_nothing_else(rule, mean):
    kinds = [*ENTRY_LIES, *CONTENT_LIES, *RULE_LIES.get(rule, {}), *MESSAGE_LIES]
    one_lie = st.tuples(st.sampled_from(kinds), st.integers(0, 2**32 - 1))
    expected = {honest: second_round(rule, mean, [], honest) for honest in (True, False)}
    counted = 0

    # Without shrinking: a failure names the lies that were believed.
    @settings(max_examples=ROUNDS, phases=[Phase.generate])
    @given(st.lists(one_lie, min_size=LIARS, max_size=LIARS), st.booleans())
    def check(lies, honest):
        nonlocal counted
        strategy, updated = second_round(rule, mean, lies, honest)
        before, unharmed = expected[honest]
        failures = strategy.phase_report.failures
        believed = [lie for i, lie in enumerate(lies, start=HONEST) if i not in failures]
        assert not believed
        if honest:
            assert [(n, a.data) for n, a in updated.items()] == [(n, a.data) for n, a in unharmed.items()]
        else:
            assert updated is None
        assert state_bits(strategy) == state_bits(before)
        assert set(strategy.phase_report.metrics) == (set(range(HONEST)) if honest else set())
        honest_but_silent = set() if honest else set(range(HONEST))
        assert failures.keys() == set(range(HONEST, HONEST + LIARS)) | honest_but_silent
        assert all(reason and len(reason) <= 500 for reason in failures.values())
        counted += len(failures.keys() - honest_but_silent)

    check()
    assert counted >= LIARS * ROUNDS
    assert not EXPLODED


def kinds_of_metrics():
    checked_by_rules = {"no arrays", "wrong arrays", "renamed", "extra name"}
    return [*(CONTENT_LIES.keys() - checked_by_rules - {"huge weight"}), *MESSAGE_LIES]


@pytest.mark.slow
@settings(max_examples=20)
@given(st.data())
def test_an_evaluation_cannot_be_spoilt_either(data):
    one_lie = st.tuples(st.sampled_from(sorted(kinds_of_metrics())), st.integers(0, 2**32 - 1))
    lies = data.draw(st.lists(one_lie, min_size=LIARS, max_size=LIARS))
    extra = []

    def client(message, partition):
        if partition < HONEST:
            found = MetricRecord({"num-examples": partition + 1, "loss": float(partition)})
            return Message(RecordDict({"metrics": found}), reply_to=message)
        replies = lie_of(*lies[partition - HONEST], message)
        extra.extend(replies[1:])
        return replies[0] if replies else None

    strategy, grid = OF_MODELS["fedavg"](), CannedGrid(HONEST + LIARS, client)
    messages = strategy.configure_evaluate(1, record(MODEL), ConfigRecord(), grid)
    mean = strategy.aggregate_evaluate(1, list(grid.send_and_receive(messages)) + extra)
    assert dict(mean) == {"loss": pytest.approx((0 * 1 + 1 * 2 + 2 * 3) / 6)}
    assert set(strategy.phase_report.failures) == set(range(HONEST, HONEST + LIARS))


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
