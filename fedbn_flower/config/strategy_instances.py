"""A strategy that was made by hand, as a class and what it was told."""

from typing import Any

from flwr.app import UserConfigValue

from fedbn_flower.strategies import PseudoGradientStrategy
from fedbn_flower.strategies.settings import declared
from fedbn_flower.strategies.signature import FLOWERS

from ..core.errors import UserError
from .selection import flags

SHARES = {"fraction_train": "fraction-train", "fraction_evaluate": "fraction-evaluate"}
WEIGHTINGS = {"num-examples": "num-examples", None: "uniform"}


def told_of(strategy: PseudoGradientStrategy) -> dict[str, UserConfigValue]:
    """What an instance was told that is not its default, by the run's keys and its settings' flags.

    Raises
    ------
    UserError
        When its class cannot be made from settings, or it was told what a run has no key for.
    """
    cls = type(strategy)
    fields = declared(cls)
    values: dict[str, Any] = {name: getattr(strategy, name) for name in fields}
    try:
        plain: Any = cls(**{name.strip("_"): value for name, value in values.items()})
    except TypeError as error:
        raise UserError(f"strategy: {cls.__name__} cannot be made from settings alone ({error})") from error
    told: dict[str, Any] = {}
    keys = {name: key for key, name in flags(cls).items()}
    defaults = {name: getattr(plain, name) for name in (argument.name for argument in FLOWERS)}
    defaults |= {name: field.default for name, field in fields.items()}
    for name, default in defaults.items():
        value = getattr(strategy, name)
        if value == default:
            continue
        if name in keys:
            told[keys[name]] = value
        elif name in SHARES:
            told[SHARES[name]] = value
        elif name == "weighted_by_key" and value in WEIGHTINGS:
            told["weighting"] = WEIGHTINGS[value]
        else:
            raise UserError(f"strategy: a run has no key for {name}={value!r}; a subclass may have it fixed")
    return told
