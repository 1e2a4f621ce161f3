"""IFCA and CFL against their algorithms, written out: who trains what, and what becomes of each model."""

import math

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp.exception import AggregationError
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import AgglomerativeClustering

from strategies import CFL, IFCA
from strategies.rules.clustered import bipartition

from ..helpers import CannedGrid, ndarrays, record, train_reply

FIRST = [
    np.array([0.0, 0.0], np.float32),
    np.array([10.0, 0.0], np.float32),
    np.array([0.0, 10.0], np.float32),
]
MINIMA = np.array([[1, 1], [9, 1], [1, 9], [8, 0], [0, 8], [2, 0]], np.float32)
"""Client i minimises |w - c_i|^2 / 2, by one step half of the way."""
EXAMPLES = [1, 2, 3, 4, 5, 6]


def rule(**settings) -> IFCA:
    made = IFCA(clusters=3, seed=0, **settings)
    made.first_model = lambda number: {"w": FIRST[number]}
    return made


def nearest(models, i):
    return int(np.argmin([np.sum((w - MINIMA[i]) ** 2) for w in models]))


def client(message: Message, i: int) -> Message:
    models = {n.removeprefix("model."): ndarrays(r)["w"] for n, r in message.content.array_records.items()}
    name = f"cluster-{nearest([models[f'cluster-{k}'] for k in range(3)], i)}"
    reply = train_reply(message, {"w": (models[name] + MINIMA[i]) / 2}, EXAMPLES[i])
    reply.content["chosen"] = ConfigRecord({"model": name})
    return reply


def ifca_round(strategy, arrays: ArrayRecord, t: int, answer=client):
    grid = CannedGrid(len(MINIMA), answer)
    messages = strategy.configure_train(t, arrays, ConfigRecord(), grid)
    asked = [m.metadata.dst_node_id for m in messages]
    return asked, *strategy.aggregate_train(t, grid.send_and_receive(messages))


@pytest.mark.parametrize("eta", [1.0, 0.5])
def test_three_rounds_of_half_the_clients_and_a_lost_answer(eta):
    strategy, arrays = rule(fraction_train=0.7, eta=eta), record({"w": FIRST[0]})
    models = [w.astype(float) for w in FIRST]
    for t in (1, 2, 3):
        lost = {2: 1}.get(t)
        asked, updated, _ = ifca_round(
            strategy, arrays, t, lambda message, i, lost=lost: None if i == lost else client(message, i)
        )
        answered = [i for i in asked if i != lost]
        chose = {i: nearest(models, i) for i in answered}
        new = list(models)
        for k in set(chose.values()):
            mine = [i for i in answered if chose[i] == k]
            weights = [EXAMPLES[i] for i in mine]
            new[k] = models[k] + eta * np.average((MINIMA[mine] - models[k]) / 2, axis=0, weights=weights)
        models = new
        for k in range(3):
            found = ndarrays(strategy.rule_state.models[f"cluster-{k}"])["w"]
            np.testing.assert_allclose(found, models[k], rtol=1e-6)
        names = {i: f"cluster-{k}" for i, k in chose.items()}
        assert {i: strategy.rule_state.assigned[i] for i in chose} == names == strategy.phase_report.models
        weights = [sum(EXAMPLES[i] for i in chose if chose[i] == k) for k in range(3)]
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
    ifca_round(strategy, record({"w": FIRST[0]}), 1, liar)
    assert strategy.phase_report.failures == {
        2: "chosen: 'cluster-7' is none of the 3 models",
        3: "the ConfigRecord 'chosen' is missing",
    }
    assert set(strategy.rule_state.assigned) == {0, 1, 4, 5}


def test_with_too_few_answers_nothing_changes():
    strategy = rule(min_replies=6)
    _, updated, metrics = ifca_round(
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

    ifca_round(strategy, record(entries), 1, answer)
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
    ifca_round(strategy, arrays, 1)

    def evaluated(message, i):
        reply = client(message, i)
        content = RecordDict({"metrics": reply.content["metrics"], "chosen": reply.content["chosen"]})
        return Message(content, reply_to=message)

    grid = CannedGrid(len(MINIMA), evaluated)
    messages = strategy.configure_evaluate(1, arrays, ConfigRecord(), grid)
    strategy.aggregate_evaluate(1, grid.send_and_receive(messages))
    models = [ndarrays(strategy.rule_state.models[f"cluster-{k}"])["w"] for k in range(3)]
    expected = {i: f"cluster-{nearest(models, i)}" for i in range(len(MINIMA))}
    assert strategy.phase_report.models == expected == strategy.rule_state.assigned


CENTRES = np.array([[4, 1, 0], [4, -1, 0], [-4, 1, 1], [-4, -1, -1], [4, 0, 1], [-4, 0, 2]], float)
WEIGHTS = np.array([1, 2, 3, 2, 1, 3], float)
PARAMETERS = {"eps_1": 1.0, "eps_2": 1.5, "first_split": 1}


def half_way(w, i):
    return (w + CENTRES[i]) / 2


def cfl_round(strategy, arrays, t, lost=()):
    def client(message, i):
        w = ndarrays(message.content["arrays"])["w"]
        return (
            None if i in lost else train_reply(message, {"w": half_way(w, i).astype(np.float32)}, WEIGHTS[i])
        )

    grid = CannedGrid(len(CENTRES), client)
    messages = strategy.configure_train(t, arrays, ConfigRecord(), grid)
    asked = [m.metadata.dst_node_id for m in messages]
    updated, _ = strategy.aggregate_train(t, grid.send_and_receive(messages))
    return asked, updated


class Reference:
    """The tree of clusters, in float64, by means of scikit-learn's single linkage."""

    def __init__(self):
        self.models, self.directions = {"cluster": np.zeros(3)}, {}
        self.at = dict.fromkeys(range(len(CENTRES)), "cluster")

    def round(self, answered):
        waiting = {}
        for i in answered:
            name = self.at[i]
            d = half_way(self.models[name], i) - self.models[name]
            if f"{name}-0" in self.directions:
                near = [d @ v / np.linalg.norm(v) for v in (self.directions[f"{name}-{h}"] for h in (0, 1))]
                self.at[i] = f"{name}-{int(near[1] > near[0])}"
            else:
                waiting.setdefault(name, []).append((i, d))
        for name, members in waiting.items():
            who, d = np.array([i for i, _ in members]), np.array([d for _, d in members])
            mean, norms = np.average(d, axis=0, weights=WEIGHTS[who]), np.linalg.norm(d, axis=1)
            if len(who) > 2 and np.linalg.norm(mean) < 1.0 and norms.max() > 1.5:
                cosines = d @ d.T / np.outer(norms, norms)
                found = AgglomerativeClustering(2, metric="precomputed", linkage="single").fit(1 - cosines)
                half = found.labels_ if found.labels_[0] == 0 else 1 - found.labels_
                for h in (0, 1):
                    mine = who[half == h]
                    self.directions[f"{name}-{h}"] = d[half == h].mean(0)
                    step = np.average(d[half == h], axis=0, weights=WEIGHTS[mine])
                    self.models[f"{name}-{h}"] = self.models[name] + step
                    self.at |= dict.fromkeys(mine.tolist(), f"{name}-{h}")
            else:
                self.models[name] = self.models[name] + mean


@pytest.mark.parametrize(("fraction", "lost"), [(1.0, {}), (1.0, {1: (2,), 2: (4,)}), (0.7, {3: (0,)})])
def test_it_follows_its_algorithm(fraction, lost):
    strategy, arrays, reference = CFL(fraction_train=fraction, seed=1, **PARAMETERS), None, Reference()
    arrays = record({"w": np.zeros(3, np.float32)})
    for t in range(1, 9):
        asked, arrays = cfl_round(strategy, arrays, t, lost.get(t, ()))
        reference.round([i for i in asked if i not in lost.get(t, ())])
        state = strategy.rule_state
        assert state.models.keys() == reference.models.keys()
        for name, expected in reference.models.items():
            np.testing.assert_allclose(ndarrays(state.models[name])["w"], expected, atol=1e-5)
        assert {i: strategy.model_of(i) for i in reference.at} == reference.at
    assert len({name for name in reference.at.values() if name != "cluster"}) >= 2
    right, left = ({strategy.model_of(i) for i in range(6) if CENTRES[i, 0] * side > 0} for side in (1, -1))
    assert right.isdisjoint(left)


def test_before_its_first_round_and_among_alike_nothing_is_split():
    for given_ in ({"first_split": 9}, {"eps_1": 0.0}, {"eps_2": 99.0}, {"gamma": 1.0}):
        strategy, arrays = CFL(**PARAMETERS | given_), record({"w": np.zeros(3, np.float32)})
        for t in range(1, 5):
            _, arrays = cfl_round(strategy, arrays, t)
        assert set(strategy.rule_state.models) == {"cluster"}
        w = np.zeros(3)
        for _ in range(4):
            w = np.average([half_way(w, i) for i in range(6)], axis=0, weights=WEIGHTS)
        np.testing.assert_allclose(ndarrays(arrays)["w"], w, atol=1e-6)


def test_what_is_at_a_bound_is_not_split():
    """Two to the right, two to the left and one that stays: the mean is 0, the greatest cosine across 0."""

    def halves(*updates, **given):
        d = np.array(updates)[:, None]
        return CFL(**{"eps_1": 0.5, "eps_2": 1.5, **given}).halves(d @ d.T, [1.0] * len(d))

    five = (2.0, 2.0, -2.0, -2.0, 0.0)
    assert halves(*five, gamma=0.7)[:4].tolist() == [0, 0, 1, 1]
    for bound in ({"gamma": math.sqrt(0.5)}, {"eps_2": 2.0}, {"eps_1": 0.0}):
        assert halves(*five, **bound) is None
    assert halves(2.0, -2.0) is halves(3.0, -2.0, 0.5) is None
    assert halves(3.0, -2.0, 0.5, eps_1=0.51).tolist() == [0, 1, 0]


@settings(max_examples=60)
@given(st.integers(3, 7), st.integers(0, 2**32 - 1))
def test_no_other_halves_are_less_alike(n, seed):
    """Against all 2^(n-1) - 1 bipartitions."""
    d = np.random.default_rng(seed).normal(size=(n, 4))
    cosines = d @ d.T / np.outer(*[np.linalg.norm(d, axis=1)] * 2)

    def across(half):
        return cosines[np.ix_(half == 0, half == 1)].max()

    every = [np.array([0, *(number >> k & 1 for k in range(n - 1))]) for number in range(1, 2 ** (n - 1))]
    half = bipartition(cosines)
    assert half[0] == 0
    assert across(half) == pytest.approx(min(map(across, every)))
