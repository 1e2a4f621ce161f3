"""CFL on quadratics: an independent simulation of its algorithm, with absent clients and lost answers."""

import numpy as np
import pytest
from flwr.app import ConfigRecord
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import AgglomerativeClustering

from strategies import CFL
from strategies.rules.clustered import bipartition

from ..helpers import CannedGrid, ndarrays, record, train_reply

CENTRES = np.array([[4, 1, 0], [4, -1, 0], [-4, 1, 1], [-4, -1, -1], [4, 0, 1], [-4, 0, 2]], float)
WEIGHTS = np.array([1, 2, 3, 2, 1, 3], float)
PARAMETERS = {"eps_1": 1.0, "eps_2": 1.5, "first_split": 1}


def trained(w, i):
    return (w + CENTRES[i]) / 2


def one_round(strategy, arrays, t, lost=()):
    def client(message, i):
        w = ndarrays(message.content["arrays"])["w"]
        return (
            None if i in lost else train_reply(message, {"w": trained(w, i).astype(np.float32)}, WEIGHTS[i])
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
            d = trained(self.models[name], i) - self.models[name]
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
        asked, arrays = one_round(strategy, arrays, t, lost.get(t, ()))
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
            _, arrays = one_round(strategy, arrays, t)
        assert set(strategy.rule_state.models) == {"cluster"}
        fedavg = Reference()
        w = np.zeros(3)
        for _ in range(4):
            w = np.average([trained(w, i) for i in range(6)], axis=0, weights=WEIGHTS)
        np.testing.assert_allclose(ndarrays(arrays)["w"], w, atol=1e-6)
        assert fedavg.models.keys() == strategy.rule_state.models.keys()


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
