"""FedExP by hand, and a step that spoils the model: an error, never the next model."""

import numpy as np
import pytest
from flwr.serverapp.exception import AggregationError

from strategies import FedAvg, FedExP

from ..helpers import one_round, record


def a_round(strategy, deltas, names=("w",)):
    """The model after a round from 0, in which client i of one example moves each entry by ``deltas[i]``."""
    models = [dict.fromkeys(names, delta.astype(np.float32)) for delta in deltas]
    return one_round(strategy, dict.fromkeys(names, np.zeros(6, np.float32)), models, [1] * len(deltas))["w"]


def test_clipped_updates_are_clipped_in_the_squares_too():
    """Two of norm 3 and 5, clipped to 1: D of opposite ones is 0.1, so eta is 1 / (2 0.01) = 50."""
    away = np.eye(6)
    deltas = np.array([3 * away[0], 5 * (0.98**0.5 * away[1] + 0.02**0.5 * away[0])])
    sent = a_round(FedExP(epsilon=0.0, clip_update_norm=1.0), deltas)
    mean = (away[0] + 0.98**0.5 * away[1] + 0.02**0.5 * away[0]) / 2
    np.testing.assert_allclose(sent, max(1, 0.5 / (mean @ mean)) * mean, rtol=1e-5)


def test_a_tied_weight_counts_once():
    deltas = np.random.default_rng(2).normal(size=(3, 6))
    two = a_round(FedExP(tied=[("v", "w")]), deltas, ("v", "w"))
    np.testing.assert_allclose(two, a_round(FedExP(), deltas), rtol=1e-5)


def test_without_an_update_the_step_is_none():
    np.testing.assert_array_equal(a_round(FedExP(epsilon=0.0), np.zeros((2, 6))), 0)


def test_before_the_first_round_the_model_counts_as_it_is():
    model = record({"w": np.ones(3, np.float32)})
    assert FedExP().counted(model) is model
    assert FedAvg().counted(model) is model


def model(value, dtype=np.float32):
    return {"a": np.full(3, value, dtype), "b.weight": np.full((2, 2), value, dtype)}


@pytest.mark.parametrize(
    ("dtype", "fits", "too_large"),
    [(np.float16, 6e4, 7e4), (np.float32, 3e38, 4e38), (np.float64, 1e308, np.inf)],
)
def test_what_the_entrys_own_dtype_cannot_hold_is_not_finite(dtype, fits, too_large):
    """The model is 0, its clients' 1: the next one is eta."""
    updated = one_round(FedAvg(eta=fits), model(0, dtype), [model(1, dtype)] * 2, [1, 1])
    np.testing.assert_allclose(updated["b.weight"], dtype(fits))
    with pytest.raises(AggregationError, match="round 4, train: Spoilt diverged: its step makes a not"):
        one_round(Spoilt(times=too_large), model(0, dtype), [model(1, dtype)] * 2, [1, 1], 4)


class Spoilt(FedAvg):
    def __init__(self, times):
        super().__init__()
        self.times = times

    def server_step(self, delta, state, round):
        return (delta.astype(float) * self.times).astype(delta.dtype)


def test_the_entry_that_is_spoilt_is_named():
    class Second(FedAvg):
        def server_step(self, delta, state, round):
            delta[4] = np.nan
            return delta

    with pytest.raises(AggregationError, match=r"its step makes b\.weight not finite"):
        one_round(Second(), model(0), [model(1)] * 2, [1, 1])


def test_an_attention_mask_is_as_it_was():
    """Minus infinity in the model itself is no divergence, even where other entries are large."""
    sent = model(0) | {"mask": np.array([[0, -np.inf], [0, 0]], np.float32)}
    answer = model(1e5) | {"mask": sent["mask"]}
    updated = one_round(FedAvg(), sent, [answer] * 2, [1, 1])
    np.testing.assert_array_equal(updated["mask"], sent["mask"])
    np.testing.assert_array_equal(updated["a"], answer["a"])
