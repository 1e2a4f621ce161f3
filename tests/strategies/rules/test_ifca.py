"""IFCA against its algorithm, written out here: who trains what, and what becomes of each model."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp.exception import AggregationError

from strategies import IFCA

from ..helpers import CannedGrid, ndarrays, record, train_reply

FIRST = [
    np.array([0.0, 0.0], np.float32),
    np.array([10.0, 0.0], np.float32),
    np.array([0.0, 10.0], np.float32),
]
CENTRES = np.array([[1, 1], [9, 1], [1, 9], [8, 0], [0, 8], [2, 0]], np.float32)
"""Client i minimises |w - c_i|^2 / 2, by one step half of the way."""
WEIGHTS = [1, 2, 3, 4, 5, 6]


def rule(**settings) -> IFCA:
    made = IFCA(clusters=3, seed=0, **settings)
    made.first_model = lambda number: {"w": FIRST[number]}
    return made


def nearest(models, i):
    return int(np.argmin([np.sum((w - CENTRES[i]) ** 2) for w in models]))


def client(message: Message, i: int) -> Message:
    models = {n.removeprefix("model."): ndarrays(r)["w"] for n, r in message.content.array_records.items()}
    name = f"cluster-{nearest([models[f'cluster-{k}'] for k in range(3)], i)}"
    reply = train_reply(message, {"w": (models[name] + CENTRES[i]) / 2}, WEIGHTS[i])
    reply.content["chosen"] = ConfigRecord({"model": name})
    return reply


def one_round(strategy, arrays: ArrayRecord, t: int, answer=client):
    grid = CannedGrid(len(CENTRES), answer)
    messages = strategy.configure_train(t, arrays, ConfigRecord(), grid)
    asked = [m.metadata.dst_node_id for m in messages]
    return asked, *strategy.aggregate_train(t, grid.send_and_receive(messages))


@pytest.mark.parametrize("eta", [1.0, 0.5])
def test_three_rounds_of_half_the_clients_and_a_lost_answer(eta):
    strategy, arrays = rule(fraction_train=0.7, eta=eta), record({"w": FIRST[0]})
    models = [w.astype(float) for w in FIRST]
    for t in (1, 2, 3):
        lost = {2: 1}.get(t)
        asked, updated, _ = one_round(
            strategy, arrays, t, lambda message, i, lost=lost: None if i == lost else client(message, i)
        )
        answered = [i for i in asked if i != lost]
        chose = {i: nearest(models, i) for i in answered}
        new = list(models)
        for k in set(chose.values()):
            mine = [i for i in answered if chose[i] == k]
            weights = [WEIGHTS[i] for i in mine]
            new[k] = models[k] + eta * np.average((CENTRES[mine] - models[k]) / 2, axis=0, weights=weights)
        models = new
        for k in range(3):
            found = ndarrays(strategy.rule_state.models[f"cluster-{k}"])["w"]
            np.testing.assert_allclose(found, models[k], rtol=1e-6)
        names = {i: f"cluster-{k}" for i, k in chose.items()}
        assert {i: strategy.rule_state.assigned[i] for i in chose} == names == strategy.phase_report.models
        weights = [sum(WEIGHTS[i] for i in chose if chose[i] == k) for k in range(3)]
        np.testing.assert_allclose(
            ndarrays(updated)["w"], np.average(models, axis=0, weights=weights), rtol=1e-6
        )
        arrays = updated


def test_an_answer_of_no_model_is_refused():
    def liar(message, i):
        reply = client(message, i)
        reply.content["chosen"] = ConfigRecord({"model": "cluster-7" if i == 2 else "cluster-0"})
        if i == 3:
            del reply.content["chosen"]
        return reply

    strategy = rule()
    one_round(strategy, record({"w": FIRST[0]}), 1, liar)
    assert strategy.phase_report.failures == {
        2: "chosen: 'cluster-7' is none of the 3 models",
        3: "the ConfigRecord 'chosen' is missing",
    }
    assert set(strategy.rule_state.assigned) == {0, 1, 4, 5}


def test_with_too_few_answers_nothing_changes():
    strategy = rule(min_replies=6)
    _, updated, metrics = one_round(
        strategy, record({"w": FIRST[0]}), 1, lambda m, i: None if i == 0 else client(m, i)
    )
    assert updated is None
    assert metrics is None
    assert strategy.rule_state.updates == 0
    assert not strategy.rule_state.assigned
    assert [ndarrays(strategy.rule_state.models[f"cluster-{k}"])["w"].tolist() for k in range(3)] == [
        w.tolist() for w in FIRST
    ]


def test_statistics_are_those_of_the_models_clients():
    """A counter is an integer; a variance has the mean of its cluster, not a step of the rule's."""
    entries = {"n.running_var": np.ones(2, np.float32), "n.num_batches_tracked": np.array(4), "w": FIRST[0]}
    strategy = IFCA(clusters=2, eta=0.5)
    strategy.first_model = lambda number: entries

    def answer(message, i):
        new = {"n.running_var": np.full(2, 1.0 + i, np.float32), "n.num_batches_tracked": np.array(8 + 2 * i)}
        reply = train_reply(message, {**new, "w": np.full(2, 2.0 * i, np.float32)})
        reply.content["chosen"] = ConfigRecord({"model": f"cluster-{i % 2}"})
        return reply

    one_round(strategy, record(entries), 1, answer)
    for k, expected in enumerate((2.0, 3.0)):  # of clients 0, 2, 4 and 1, 3, 5
        model = ndarrays(strategy.rule_state.models[f"cluster-{k}"])
        np.testing.assert_allclose(model["n.running_var"], 1 + expected)
        np.testing.assert_allclose(model["w"], expected)
        assert model["n.num_batches_tracked"] == 8 + 2 * expected
        assert model["n.num_batches_tracked"].dtype == np.int64


def test_without_weights_of_its_models_it_says_so():
    with pytest.raises(AggregationError, match="assign first_model"):
        IFCA().configure_train(1, record({"w": FIRST[0]}), ConfigRecord(), CannedGrid(1, client))


def test_evaluation_notes_what_was_chosen():
    strategy, arrays = rule(), record({"w": FIRST[0]})
    one_round(strategy, arrays, 1)

    def evaluated(message, i):
        reply = client(message, i)
        content = RecordDict({"metrics": reply.content["metrics"], "chosen": reply.content["chosen"]})
        return Message(content, reply_to=message)

    grid = CannedGrid(len(CENTRES), evaluated)
    messages = strategy.configure_evaluate(1, arrays, ConfigRecord(), grid)
    strategy.aggregate_evaluate(1, grid.send_and_receive(messages))
    models = [ndarrays(strategy.rule_state.models[f"cluster-{k}"])["w"] for k in range(3)]
    expected = {i: f"cluster-{nearest(models, i)}" for i in range(len(CENTRES))}
    assert strategy.phase_report.models == expected == strategy.rule_state.assigned
