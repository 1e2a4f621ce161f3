"""Refuse the use of rules with Flower's legacy API, which they do not support."""

from typing import Any, NoReturn

ARGUMENTS = {
    "accept_failures",
    "evaluate_fn",
    "evaluate_metrics_aggregation_fn",
    "fit_metrics_aggregation_fn",
    "fraction_fit",
    "initial_parameters",
    "inplace",
    "min_available_clients",
    "min_evaluate_clients",
    "min_fit_clients",
    "num_clients_to_keep",
    "num_malicious_clients",
    "on_evaluate_config_fn",
    "on_fit_config_fn",
}
"""Of strategies of ``flwr.server.strategy``, and of none of ``flwr.serverapp.strategy``."""


class LegacyApi(TypeError):
    """A rule is used as a strategy of Flower's legacy API; the message is one line."""

    def __init__(self, cls: type, what: str) -> None:
        super().__init__(
            f"{cls.__name__}: {what} is of Flower's legacy API; these strategies serve the Message API "
            "(strategy.start(grid, ...) in @app.main() of flwr.serverapp.ServerApp). With server_fn, "
            "ServerConfig or start_server, import the strategy from flwr.server.strategy"
        )


class NoLegacyMethods:
    """Refuses the methods that a legacy server calls."""

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise `LegacyApi`."""
        raise LegacyApi(type(self), "initialize_parameters")

    def evaluate(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise `LegacyApi`."""
        raise LegacyApi(type(self), "evaluate")

    def configure_fit(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise `LegacyApi`."""
        raise LegacyApi(type(self), "configure_fit")

    def aggregate_fit(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise `LegacyApi`."""
        raise LegacyApi(type(self), "aggregate_fit")


def check_methods(cls: type) -> None:
    """Refuse a subclass that overrides a legacy round method: nothing would call it.

    Raises
    ------
    LegacyApi
        Names the method.
    """
    for name in ("configure_fit", "aggregate_fit"):
        if getattr(cls, name) is not getattr(NoLegacyMethods, name):
            raise LegacyApi(cls, name)
