"""FedAMP, FedAP and FedPAC against their equations in float64, with absent clients and lost answers."""

import math

import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.serverapp.exception import AggregationError
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from strategies import FedAMP, FedAP, FedPAC
from strategies.rules.personal import head_weights

from ..helpers import CannedGrid, ndarrays, record, train, train_reply

CENTRES = np.array([[0, 0], [0.5, 0], [3, 3], [3, 3.5]])
EXAMPLES = [1, 2, 3, 4]


def mixture(w, alpha, sigma):
    """The equations, one pair after the other."""
    n = len(w)
    xi = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i != j:
                xi[i, j] = alpha * np.exp(-np.sum((w[i] - w[j]) ** 2) / sigma) / sigma
        if xi[i].sum() > 1:
            xi[i] /= xi[i].sum()
        xi[i, i] = 1 - xi[i].sum()
    return xi


PARTLY = pytest.mark.parametrize(("fraction", "lost"), [(0.5, {2: 1}), (1.0, {1: 2, 3: 0})])


def rounds(strategy, start, count, trained, lost):
    """By round: its number, what clients were sent, what of those that answered was trained, the main model,
    and each client's own."""
    arrays = record(start)
    for t in range(1, count + 1):
        sent, new = {}, {}

        def client(message, i, t=t, sent=sent, new=new):
            sent[i] = ndarrays(message.content["arrays"])
            if lost.get(t) == i:
                return None
            new[i] = trained(sent[i], i, t)
            return train_reply(message, new[i], EXAMPLES[i])

        arrays, _ = train(strategy, arrays, CannedGrid(4, client), t)
        models = strategy.rule_state.models
        own = {i: ndarrays(models[f"client-{i}"]) for i in range(4) if f"client-{i}" in models}
        yield t, sent, new, ndarrays(arrays), own


@pytest.mark.parametrize(("alpha", "sigma"), [(0.1, 1.0), (5.0, 2.0)])
@PARTLY
def test_fedamp_follows_its_equations(alpha, sigma, fraction, lost):
    strategy, main, kept = FedAMP(alpha=alpha, sigma=sigma, fraction_train=fraction, seed=3), np.ones(2), {}

    def half_way(sent, i, t):
        return {"w": ((sent["w"] + CENTRES[i]) / 2).astype(np.float32)}

    for _, sent, new, arrays, own in rounds(strategy, {"w": np.ones(2, np.float32)}, 4, half_way, lost):
        who = sorted(kept)
        xi = mixture([kept[i] for i in who], alpha, sigma)
        for i, u in sent.items():
            expected = sum(xi[who.index(i), n] * kept[j] for n, j in enumerate(who)) if i in kept else main
            np.testing.assert_allclose(u["w"], expected, rtol=1e-5)
        kept |= {i: (sent[i]["w"] + CENTRES[i]) / 2 for i in new}
        main = np.average([kept[i] for i in new], axis=0, weights=[EXAMPLES[i] for i in new])
        np.testing.assert_allclose(arrays["w"], main, rtol=1e-5)
        assert own.keys() == kept.keys()
        for i, w in kept.items():
            np.testing.assert_allclose(own[i]["w"], w, rtol=1e-5)


def test_a_client_evaluates_its_own_model_and_a_new_one_the_main():
    strategy, arrays = FedAMP(fraction_train=0.5, seed=0), record({"w": np.zeros(2, np.float32)})
    train = CannedGrid(4, lambda m, i: train_reply(m, {"w": CENTRES[i].astype(np.float32)}))
    messages = strategy.configure_train(1, arrays, ConfigRecord(), train)
    trained = [m.metadata.dst_node_id for m in messages]
    arrays, _ = strategy.aggregate_train(1, train.send_and_receive(messages))
    for message in strategy.configure_evaluate(1, arrays, ConfigRecord(), train):
        i = message.metadata.dst_node_id
        expected = CENTRES[i] if i in trained else CENTRES[trained].mean(0)
        np.testing.assert_allclose(ndarrays(message.content["arrays"])["w"], expected, rtol=1e-6)


def test_counters_stay_integers_in_a_mixture():
    strategy = FedAMP(alpha=100.0, sigma=100.0)
    entries = {"w": np.zeros(1, np.float32), "n.num_batches_tracked": np.array(0)}
    w = np.zeros(1, np.float32)
    grid = CannedGrid(2, lambda m, i: train_reply(m, {"w": w, "n.num_batches_tracked": np.array(5 + i)}))
    arrays, _ = strategy.aggregate_train(
        1, grid.send_and_receive(strategy.configure_train(1, record(entries), ConfigRecord(), grid))
    )
    sent = [ndarrays(m.content["arrays"]) for m in strategy.configure_train(2, arrays, ConfigRecord(), grid)]
    assert [s["n.num_batches_tracked"].tolist() for s in sent] == [6, 5]  # each the other's: alpha A'(0) = 1
    assert all(s["n.num_batches_tracked"].dtype == np.int64 for s in sent)


ENTRIES = {
    "a.weight": np.zeros(2, np.float32),
    "b.weight": np.ones(2, np.float32),
    "b.running_mean": np.zeros(2, np.float32),
    "b.running_var": np.ones(2, np.float32),
    "b.num_batches_tracked": np.array(0),
    "c.running_mean": np.zeros(1, np.float32),
    "c.running_var": np.ones(1, np.float32),
}
OF_NORM = [name for name in ENTRIES if not name.startswith("a.")]


def trained(entries, i, t):
    rng = np.random.default_rng([i, t])
    new = {n: (a + rng.uniform(0.1, 1, a.shape) * (1 + i // 2)).astype(a.dtype) for n, a in entries.items()}
    return new | {"b.num_batches_tracked": np.array(10 * t + i)}


def mixing(models, own):
    """The authors' loops: distances of layers, inverted, a row's sum 1 - lambda beside the diagonal."""
    n = len(models)
    if n == 1:
        return np.ones((1, 1))
    w = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            d = 0.0
            for layer in ("b", "c"):
                m_i, m_j = (models[k][f"{layer}.running_mean"] for k in (i, j))
                v_i, v_j = (np.sqrt(models[k][f"{layer}.running_var"]) for k in (i, j))
                d += math.sqrt(np.sum((m_i - m_j) ** 2) + np.sum((v_i - v_j) ** 2))
            w[i, j] = 0 if i == j else 1 / d
        w[i] = w[i] / w[i].sum() * (1 - own)
        w[i, i] = own
    return w


def test_fedap_of_a_single_client_is_its_own():
    assert FedAP(own=0.5).weights([record(ENTRIES)]).tolist() == [[1]]


@PARTLY
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_fedap_follows_its_equations(share, fraction, lost):
    strategy, kept = FedAP(own=share, fraction_train=fraction, seed=3), {}
    for _, sent, new, arrays, own in rounds(strategy, ENTRIES, 3, trained, lost):
        for i in sent.keys() & kept.keys():
            for name, array in kept[i].items():
                np.testing.assert_allclose(sent[i][name], array, rtol=1e-5)
        known = {**kept, **new}
        who = sorted(known)
        w = mixing([known[i] for i in who], share)
        for i, own_model in new.items():
            mixture = sum(w[who.index(i), n] * known[j]["a.weight"].astype(float) for n, j in enumerate(who))
            kept[i] = {name: own_model[name] for name in OF_NORM} | {"a.weight": mixture}
        for i, expected in kept.items():
            for name, array in expected.items():
                np.testing.assert_allclose(own[i][name], array, rtol=1e-5)
                assert own[i][name].dtype == ENTRIES[name].dtype
        main = np.average([new[i]["a.weight"] for i in new], axis=0, weights=[EXAMPLES[i] for i in new])
        np.testing.assert_allclose(arrays["a.weight"], main, rtol=1e-5)


def test_clients_with_the_same_statistics_share_alike():
    strategy = FedAP(own=0.4)
    models = [record(ENTRIES | {"a.weight": np.full(2, i, np.float32)}) for i in range(3)]
    np.testing.assert_allclose(strategy.weights(models), [[0.4, 0.3, 0.3], [0.3, 0.4, 0.3], [0.3, 0.3, 0.4]])


def objective(a, i, means, spreads):
    return a**2 @ spreads + np.sum((means[i] - a @ means) ** 2)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_the_weights_solve_the_quadratic_programme(n, seed):
    rng = np.random.default_rng(seed)
    means, spreads = rng.normal(size=(n, 5)), rng.uniform(0.01, 2, n)
    found = head_weights(means, spreads)
    assert np.all(found >= 0)
    np.testing.assert_allclose(found.sum(1), 1)
    for i in range(n):
        general = minimize(
            objective, np.full(n, 1 / n), (i, means, spreads), "SLSQP", bounds=[(0, 1)] * n,
            constraints={"type": "eq", "fun": lambda a: a.sum() - 1}, options={"ftol": 1e-12},
        )  # fmt: skip
        assert objective(found[i], i, means, spreads) <= general.fun * (1 + 1e-6) + 1e-9


def test_fedpacs_weights_by_hand():
    """The same means: weights go as 1 / V. Far means: each keeps its own."""
    np.testing.assert_allclose(head_weights(np.ones((2, 3)), np.array([1.0, 3.0])), [[0.75, 0.25]] * 2)
    far = head_weights(np.array([[0.0], [1e6]]), np.array([1.0, 3.0]))
    np.testing.assert_allclose(far, np.eye(2), atol=1e-9)


START = {"body": np.zeros(2, np.float32), "head": np.zeros(2, np.float32)}


def answer_of(i, message, features):
    sent = ndarrays(message.content["arrays"])
    new = {"body": sent["body"] + np.float32(i + 1), "head": sent["head"] + np.float32(10 * (i + 1))}
    reply = train_reply(message, new, i + 1)
    reply.content["prototypes"] = record(
        {"sums": np.ones((1, 1), np.float32), "shares": np.ones(1, np.float32)}
    )
    means, spread = features[i]
    arrays = {"class-means": np.array(means, np.float32), "spread": np.array(spread, np.float32)}
    reply.content["features"] = record(arrays)
    return reply


ALIKE = ([[0.0]], 1.0)


def test_the_body_is_the_mean_and_heads_are_mixtures_of_those_that_answered():
    strategy, arrays = FedPAC(), record(START)
    strategy.head = frozenset({"head"})
    features, heads, body = [ALIKE, ([[0.0]], 3.0), ([[1e6]], 1.0)], {}, np.zeros(2)
    for lost in (None, 1):

        def client(message, i, lost=lost, body=body, heads=heads):
            sent = ndarrays(message.content["arrays"])
            np.testing.assert_allclose(sent["body"], body, rtol=1e-6)
            if i in heads:
                np.testing.assert_allclose(sent["head"], heads[i], rtol=1e-5)
            return None if i == lost else answer_of(i, message, features)

        grid = CannedGrid(3, client)
        arrays, _ = train(strategy, arrays, grid)
        who = [i for i in range(3) if i != lost]
        trained = {i: heads.get(i, np.zeros(2)) + 10 * (i + 1) for i in who}
        body = body + np.average([i + 1 for i in who], weights=[i + 1 for i in who])
        if lost is None:
            heads = {0: 0.75 * trained[0] + 0.25 * trained[1], 2: trained[2]}
            heads[1] = heads[0]
        else:
            heads = heads | {0: trained[0], 2: trained[2]}
        np.testing.assert_allclose(ndarrays(arrays)["body"], body, rtol=1e-6)
        for i, head in heads.items():
            model = strategy.rule_state.models[f"client-{i}"]
            assert list(model) == ["head"]
            np.testing.assert_allclose(ndarrays(model)["head"], head, rtol=1e-5)


def test_fedpac_without_the_names_of_the_head_is_refused():
    with pytest.raises(AggregationError, match="assign head before the run"):
        train(FedPAC(), START, CannedGrid(2, lambda m, i: answer_of(i, m, [ALIKE] * 2)))


@pytest.mark.parametrize(
    ("means", "spread", "why"),
    [
        ([[1e9]], 1.0, "features: a mean feature above 1e+06"),
        ([[1.0]], -1.0, "spread: from -1 to -1, not a number in [0, 1e+12]"),
        ([[1.0]], 1e13, "spread: from 1e+13 to 1e+13, not a number in [0, 1e+12]"),
        ([[1.0]], [1.0], "spread: shape (1,), expected ()"),
        ([1.0], 1.0, "class-means: shape (1,), expected (1, 1)"),
        (1.0, 1.0, "class-means: shape (), expected (1, 1)"),
        ([[1.0, 1.0]], 1.0, "class-means: shape (1, 2), expected (1, 1)"),
    ],
)
def test_features_that_cannot_be_are_refused(means, spread, why):
    strategy = FedPAC()
    strategy.head = frozenset({"head"})
    train(strategy, START, CannedGrid(2, lambda m, i: answer_of(i, m, [ALIKE, (means, spread)])))
    assert list(strategy.phase_report.metrics) == [0]
    assert strategy.phase_report.failures == {1: why}
