"""`aggregate_train` without `configure_train`, as in unit tests: with Flower's classes and with ours."""

import numpy as np
import pytest
from flwr.serverapp.exception import AggregationError

from ..helpers import ndarrays, record
from .scenarios import MEANS, MODEL, answer, both, both_raise, client, make, mocks, plain, run, trained


@pytest.mark.parametrize("rule", MEANS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_a_mean_of_mocks(rule, shape):
    values = [np.full(shape, v) for v in (0.5, 2.0, 1.0, 7.0)]
    both(lambda api: plain(make(api, rule).aggregate_train(1, mocks(values, [1, 5, 2, 9]))))


@pytest.mark.parametrize("rule", ["FedAvgM", "FedAdagrad", "FedYogi"])
def test_a_step_from_nowhere(rule):
    both_raise(AggregationError, lambda api: make(api, rule).aggregate_train(1, mocks([1.0, 2.0])))


def test_a_momentum_from_nowhere():
    """The first step is the mean, but the momentum that it would leave is of the whole model."""
    both_raise(
        AggregationError, lambda api: api.FedAvgM(server_momentum=0.9).aggregate_train(1, mocks([1.0]))
    )


@pytest.mark.parametrize("rule", ["FedAvgM", "FedAdagrad", "FedYogi"])
def test_the_model_set_by_hand(rule):
    """FedAvgM keeps an ArrayRecord there, the others a dict."""

    def scenario(api):
        strategy = make(api, rule)
        start = {"0": np.array([1.0, -2.0])}
        strategy.current_arrays = record(start) if rule == "FedAvgM" else start
        return plain(strategy.aggregate_train(1, mocks([[2.0, 3.0], [0.5, -2.0]], [1, 3])))

    both(scenario)


def test_empty_initial_arrays():
    """The clients bring the model."""

    def bringing(message, node):
        sent = ndarrays(message.content["arrays"])
        if message.metadata.message_type == "evaluate":
            return client(message, node)
        return answer(message, trained(sent or MODEL, node), node + 1)

    both(lambda api: run(api.FedAvg(), arrays={}, work=bringing))
