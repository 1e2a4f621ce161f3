"""A rule where Flower's legacy API expects its own: one line says which API it serves."""

import inspect

import flwr.server.strategy as legacy
import pytest
from flwr.server import Server, ServerConfig, SimpleClientManager
from flwr.server.server import run_fl

import strategies
from strategies.signature import LegacyApi

OF_BOTH = [name for name in strategies.__all__ if hasattr(legacy, name)]


class Rounds(strategies.FedAvg):
    def aggregate_fit(self, server_round, results, failures):
        return super().aggregate_fit(server_round, results, failures)


class Begins(strategies.FedYogi):
    def initialize_parameters(self, client_manager):
        return super().initialize_parameters(client_manager)


def fit(strategy):
    run_fl(Server(client_manager=SimpleClientManager(), strategy=strategy), ServerConfig(num_rounds=1))


@pytest.mark.parametrize(
    ("use", "named"),
    [
        (lambda: strategies.FedAvg(fraction_fit=1.0), "FedAvg: the argument fraction_fit"),
        (lambda: strategies.FedAdam(min_fit_clients=2, eta=1.0), "FedAdam: the argument min_fit_clients"),
        (Rounds, "Rounds: aggregate_fit"),
        (lambda: fit(strategies.FedAvg()), "FedAvg: initialize_parameters"),
        (lambda: fit(Begins()), "Begins: initialize_parameters"),
        (
            lambda: fit(legacy.DifferentialPrivacyServerSideFixedClipping(strategies.FedAvg(), 1.0, 1.0, 2)),
            "FedAvg: initialize_parameters",
        ),
    ],
)
def test_the_legacy_api_is_named(use, named):
    with pytest.raises(LegacyApi, match=f"^{named} is of Flower's legacy API; .* flwr.server.strategy$"):
        use()


def test_no_argument_of_flowers_legacy_base_is_taken_for_a_slip():
    """All that `flwr.server.strategy.FedAvg` takes and the rule does not."""
    for name in OF_BOTH:
        rule = getattr(strategies, name)
        theirs = set(inspect.signature(legacy.FedAvg.__init__).parameters) - {"self"}
        lacking = theirs - set(inspect.signature(rule).parameters)
        assert len(lacking) > 5
        for argument in lacking:
            with pytest.raises(LegacyApi, match=f": the argument {argument} is"):
                rule(**{argument: None})
