"""FedAMP against its equations in float64, with absent clients and a lost answer."""

import numpy as np
import pytest
from flwr.app import ConfigRecord

from strategies import FedAMP

from ..helpers import CannedGrid, ndarrays, record, train_reply

CENTRES = np.array([[0, 0], [0.5, 0], [3, 3], [3, 3.5]])
WEIGHTS = [1, 2, 3, 4]


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


@pytest.mark.parametrize(("alpha", "sigma"), [(0.1, 1.0), (5.0, 2.0)])
@pytest.mark.parametrize(("fraction", "lost"), [(1.0, {}), (0.5, {2: 1}), (1.0, {1: 2, 3: 0})])
def test_it_follows_its_equations(alpha, sigma, fraction, lost):
    strategy = FedAMP(alpha=alpha, sigma=sigma, fraction_train=fraction, seed=3)
    main, arrays = np.ones(2), record({"w": np.ones(2, np.float32)})
    kept: dict[int, np.ndarray] = {}
    for t in range(1, 5):
        sent: dict[int, np.ndarray] = {}

        def client(message, i, t=t, sent=sent):
            sent[i] = ndarrays(message.content["arrays"])["w"]
            new = (sent[i] + CENTRES[i]) / 2
            return (
                None if lost.get(t) == i else train_reply(message, {"w": new.astype(np.float32)}, WEIGHTS[i])
            )

        grid = CannedGrid(len(CENTRES), client)
        messages = strategy.configure_train(t, arrays, ConfigRecord(), grid)
        arrays, _ = strategy.aggregate_train(t, grid.send_and_receive(messages))
        who = sorted(kept)
        xi = mixture([kept[i] for i in who], alpha, sigma)
        for i, u in sent.items():
            expected = sum(xi[who.index(i), n] * kept[j] for n, j in enumerate(who)) if i in kept else main
            np.testing.assert_allclose(u, expected, rtol=1e-5)
        new = {i: (u + CENTRES[i]) / 2 for i, u in sent.items() if lost.get(t) != i}
        kept |= new
        main = np.average(list(new.values()), axis=0, weights=[WEIGHTS[i] for i in new])
        np.testing.assert_allclose(ndarrays(arrays)["w"], main, rtol=1e-5)
        for i, w in kept.items():
            np.testing.assert_allclose(ndarrays(strategy.rule_state.models[f"client-{i}"])["w"], w, rtol=1e-5)


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
