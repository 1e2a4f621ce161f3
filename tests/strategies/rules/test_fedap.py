"""FedAP against its equations in float64, with absent clients and a lost answer."""

import math

import numpy as np
import pytest
from flwr.app import ConfigRecord

from strategies import FedAP

from ..helpers import CannedGrid, ndarrays, record, train_reply

START = {
    "a.weight": np.zeros(2, np.float32),
    "b.weight": np.ones(2, np.float32),
    "b.running_mean": np.zeros(2, np.float32),
    "b.running_var": np.ones(2, np.float32),
    "b.num_batches_tracked": np.array(0),
    "c.running_mean": np.zeros(1, np.float32),
    "c.running_var": np.ones(1, np.float32),
}
OF_NORM = [name for name in START if not name.startswith("a.")]
WEIGHTS = [1, 2, 3, 4]


def trained(entries, i, t):
    rng = np.random.default_rng([i, t])
    new = {n: (a + rng.uniform(0.1, 1, a.shape) * (1 + i // 2)).astype(a.dtype) for n, a in entries.items()}
    return new | {"b.num_batches_tracked": np.array(10 * t + i)}


def weights(models, own):
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


@pytest.mark.parametrize(("fraction", "lost"), [(1.0, {}), (0.5, {2: 1}), (1.0, {1: 2, 3: 0})])
@pytest.mark.parametrize("own", [0.5, 0.9])
def test_it_follows_its_equations(own, fraction, lost):
    strategy, arrays = FedAP(own=own, fraction_train=fraction, seed=3), record(START)
    kept: dict[int, dict] = {}
    for t in range(1, 4):
        new: dict[int, dict] = {}

        def client(message, i, t=t, new=new, kept=kept):
            sent = ndarrays(message.content["arrays"])
            for name, array in kept.get(i, {}).items():
                np.testing.assert_allclose(sent[name], array, rtol=1e-5)
            if lost.get(t) == i:
                return None
            new[i] = trained(sent, i, t)
            return train_reply(message, new[i], WEIGHTS[i])

        grid = CannedGrid(4, client)
        messages = strategy.configure_train(t, arrays, ConfigRecord(), grid)
        arrays, _ = strategy.aggregate_train(t, grid.send_and_receive(messages))
        known = {**kept, **new}
        who = sorted(known)
        w = weights([known[i] for i in who], own)
        for i, own_model in new.items():
            mixture = sum(w[who.index(i), n] * known[j]["a.weight"].astype(float) for n, j in enumerate(who))
            kept[i] = {name: own_model[name] for name in OF_NORM} | {"a.weight": mixture}
        for i, expected in kept.items():
            model = ndarrays(strategy.rule_state.models[f"client-{i}"])
            for name, array in expected.items():
                np.testing.assert_allclose(model[name], array, rtol=1e-5)
                assert model[name].dtype == START[name].dtype
        of_main = [new[i]["a.weight"] for i in sorted(new)]
        main = np.average(of_main, axis=0, weights=[WEIGHTS[i] for i in sorted(new)])
        np.testing.assert_allclose(ndarrays(arrays)["a.weight"], main, rtol=1e-5)


def test_clients_with_the_same_statistics_share_alike():
    strategy = FedAP(own=0.4)
    models = [record(START | {"a.weight": np.full(2, i, np.float32)}) for i in range(3)]
    np.testing.assert_allclose(strategy.weights(models), [[0.4, 0.3, 0.3], [0.3, 0.4, 0.3], [0.3, 0.3, 0.4]])
