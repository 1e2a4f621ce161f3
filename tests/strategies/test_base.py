"""What every rule inherits: what is stepped, what is averaged, and Flower's own loop."""

import numpy as np
import pytest
from flwr.serverapp.exception import AggregationError
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import FedAvg, FedYogi

from .helpers import MODEL, OF_MODELS, CannedGrid, moved, ndarrays, one_round, train, train_reply


@pytest.mark.parametrize("rule", OF_MODELS.values())
def test_statistics_are_averaged_and_never_stepped(rule):
    """Flower's FedYogi at eta 0.1 steps running_var below zero; here it is the clients' mean exactly."""
    strategy, arrays = rule(**({"eta": 0.1} if hasattr(rule, "eta") else {})), dict(MODEL)
    mean = 0.04 if rule.weighs_alike else 0.05
    for t in range(1, 4):
        models = [arrays | {"downsample.1.running_var": np.full(3, v, np.float32)} for v in (0.02, 0.06)]
        arrays = one_round(strategy, arrays, models, [1, 3], t)
        np.testing.assert_allclose(arrays["downsample.1.running_var"], mean, rtol=1e-6)
        np.testing.assert_array_equal(arrays["layer.weight"], MODEL["layer.weight"])
    got = one_round(strategy, MODEL, [moved(0.5), moved(0.25, batches=23)], [1, 1], 4)
    assert [(n, a.shape, a.dtype) for n, a in got.items()] == [
        (n, a.shape, a.dtype) for n, a in MODEL.items()
    ]
    assert got["downsample.1.num_batches_tracked"] == 22  # the mean 21.5, rounded to even


def test_the_names_to_step_can_be_given():
    strategy = FedYogi(trainable=["layer.weight"])
    got = one_round(strategy, MODEL, [moved(0.5)] * 2, [1, 1])
    np.testing.assert_allclose(got["downsample.1.weight"], 1.5)  # averaged
    assert not np.allclose(got["layer.weight"], 1.5)  # stepped
    with pytest.raises(ValueError, match="nosuch"):
        one_round(FedYogi(trainable=["nosuch"]), MODEL, [moved(0.5)] * 2, [1, 1])


@settings(max_examples=20)
@given(order=st.permutations(range(4)), rule=st.sampled_from(sorted(OF_MODELS)))
def test_the_order_of_replies_does_not_change_a_bit(order, rule):
    rng = np.random.default_rng(0)
    models = [{"w": rng.normal(size=50).astype(np.float32)} for _ in range(4)]

    def result(permutation):
        strategy = OF_MODELS[rule]()
        grid = CannedGrid(4, lambda m, i: train_reply(m, models[i], i + 1))
        grid.order = lambda replies: [replies[i] for i in permutation]
        start = {"w": np.zeros(50, np.float32)}
        return ndarrays(train(strategy, start, grid)[0])["w"]

    np.testing.assert_array_equal(result(order), result(range(4)))


@pytest.mark.parametrize(
    ("step", "got"),
    [
        (None, "NoneType"),
        (0.5, "float"),
        (np.ones(1, np.float32), r"shape \(1,\)"),
        (np.ones(9, bool), "bool"),
    ],
)
def test_a_step_that_is_no_vector_of_the_model_ends_the_run(step, got):
    class Odd(FedAvg):
        def server_step(self, delta, state, round):
            return step

    with pytest.raises(
        AggregationError, match=rf"Odd.server_step returned {got}, expected a NumPy array of \(9,\)"
    ):
        one_round(Odd(), MODEL, [moved(0.5)] * 2, [1, 1])
