"""Convert an instance of a strategy to its class and the settings it was given."""

from typing import Any

from flwr.app import UserConfigValue

from fedbn_flower.strategies import PseudoGradientStrategy
from fedbn_flower.strategies.signature import FLOWERS

from ..core.errors import UserError
from ..core.ground.settings import declared
from .named_algorithms import flags

SHARES = {"fraction_train": "fraction-train", "fraction_evaluate": "fraction-evaluate"}
WEIGHTINGS = {"num-examples": "num-examples", None: "uniform"}


def given_settings(strategy: PseudoGradientStrategy) -> dict[str, UserConfigValue]:
    """Return the arguments of an instance that are not defaults, by the run's keys and settings' flags.

    Raises
    ------
    UserError
        When its class cannot be constructed from settings alone, or an argument has no key.
    """
    cls = type(strategy)
    fields = declared(cls)
    values: dict[str, Any] = {name: getattr(strategy, name) for name in fields}
    try:
        plain: Any = cls(**{name.strip("_"): value for name, value in values.items()})
    except TypeError as error:
        raise UserError(f"strategy: {cls.__name__} cannot be made from settings alone ({error})") from error
    given: dict[str, Any] = {}
    keys = {name: key for key, name in flags(cls).items()}
    defaults = {name: getattr(plain, name) for name in (argument.name for argument in FLOWERS)}
    defaults |= {name: field.default for name, field in fields.items()}
    for name, default in defaults.items():
        value = getattr(strategy, name)
        if value == default:
            continue
        if name in keys:
            given[keys[name]] = value
        elif name in SHARES:
            given[SHARES[name]] = value
        elif name == "weighted_by_key" and value in WEIGHTINGS:
            given["weighting"] = WEIGHTINGS[value]
        else:
            raise UserError(f"strategy: a run has no key for {name}={value!r}; a subclass may have it fixed")
    return given
