"""The arguments of a rule's constructor: Flower's, the declared settings, and `OTHERS`.

What is of Flower's legacy API is refused: rules do not support it.
"""

import difflib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from flwr.serverapp.strategy import FedAvg as FlowerFedAvg

from fedbn_flower.core.ground.settings import checked, declared, flag

FLOWERS = list(inspect.signature(FlowerFedAvg.__init__).parameters.values())[1:]
OTHERS: Mapping[str, Any] = {"trainable": None, "tied": (), "ask_partitions": False, "query_timeout": 120.0}
SYNONYMS = {
    "lr": "server-lr",
    "learning_rate": "server-lr",
    "server_learning_rate": "server-lr",
    "beta": "server-momentum",
    "eps": "tau",
    "epsilon": "tau",
    "mu": "proximal-mu",
}
"""Other libraries' names of settings -> our flag."""


def signature(cls: type) -> inspect.Signature:
    """Return the signature: Flower's arguments and the public settings (also by position), then the rest.

    A class whose settings Flower has among its own arguments names the next one in ``_settings_before_``.
    """
    keyword, positional = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    flowers, before = list(FLOWERS), getattr(cls, "_settings_before_", None)
    at = next((i for i, parameter in enumerate(flowers) if parameter.name == before), len(flowers))
    settings = [
        inspect.Parameter(
            name.strip("_"),
            keyword if name.startswith("_") else positional,
            default=inspect.Parameter.empty if field.is_required() and not at else field.default,
        )
        for name, field in declared(cls).items()
    ]
    flowers[at:at] = settings
    others = [inspect.Parameter(name, keyword, default=default) for name, default in OTHERS.items()]
    return inspect.Signature(sorted([*flowers, *others], key=lambda parameter: parameter.kind))


class SignatureOfClass:
    """``cls.__signature__``: that of its ``__init__``; if that takes ``*args, **kwargs``, all arguments.

    It is computed on access, since a dataclass gets its ``__init__`` after the class body.
    """

    def __get__(self, instance: object, cls: type) -> inspect.Signature:
        try:
            init = inspect.signature(cls.__init__)  # type: ignore[misc]
        except (TypeError, ValueError) as error:
            raise AttributeError("__signature__") from error
        parameters = list(init.parameters.values())[1:]
        if [one.kind for one in parameters] == [
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        ]:
            return signature(cls)
        return init.replace(parameters=parameters)


def bound(
    cls: type, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return (the given Flower arguments, `OTHERS`, every setting by attribute), all checked.

    Raises
    ------
    ValueError
        For a value that is not allowed; the message names the argument, the value and what is allowed.
    TypeError
        For an unknown argument; the message names the class and the likely intended argument.
    """
    arguments = signature(cls)
    if unknown := [name for name in kwargs if name not in arguments.parameters]:
        if legacy := sorted(LEGACY_ARGUMENTS.intersection(unknown)):
            raise LegacyApi(cls, f"the argument {legacy[0]}")
        raise TypeError(_no_such_argument(cls, unknown[0], list(arguments.parameters)))
    try:
        given = arguments.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise TypeError(f"{cls.__name__}: {error}") from None
    flowers = {one.name: given.pop(one.name) for one in FLOWERS if one.name in given}
    others = {name: given.pop(name, default) for name, default in OTHERS.items()}
    for name, value in flowers.items():
        if name.startswith("fraction_") and not 0 <= value <= 1:
            raise ValueError(f"{name}={value!r} is not allowed; expected a number in [0, 1]")
        if name.startswith("min_") and not value >= 0:
            raise ValueError(f"{name}={value!r} is not allowed; expected a whole number >= 0")
    return flowers, others, checked(cls, given)


def _no_such_argument(cls: type, name: str, known: Sequence[str]) -> str:
    """Return an error message that suggests the setting of this flag or synonym, or the nearest name."""
    settings = {flag(attribute, field): (attribute, field) for attribute, field in declared(cls).items()}
    message = f"{cls.__name__} has no argument {name!r}"
    if found := settings.get(SYNONYMS.get(name, name.replace("_", "-"))):
        attribute, field = found
        return f"{message}; did you mean {attribute.strip('_')} ({field.description})?"
    if near := difflib.get_close_matches(name, known):
        return f"{message}; did you mean {near[0]}?"
    return f"{message}; it has {', '.join(known)}"


LEGACY_ARGUMENTS = {
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
