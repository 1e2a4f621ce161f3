"""Settings of an object, from a message: those that its class declares."""

from collections.abc import Mapping
from typing import Any

from fedbn_flower.core.ground.settings import declared, flag


def values(cls: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a class's settings by attribute, from a mapping by flag. Other flags are ignored."""
    flags = {name: flag(name, field) for name, field in declared(cls).items()}
    return {name: given[key] for name, key in flags.items() if key in given}


def set_values(target: object, given: Mapping[str, Any]) -> None:
    """Set every declared setting on an object: to the value given by attribute, or to its default.

    Raises
    ------
    ValueError
        For a value that is not a declared setting, or a missing value without default.
    """
    cls: type = type(target)
    settings = declared(cls)
    for name in given:
        if name not in settings:
            raise ValueError(f"{cls.__name__} has no setting {name!r}; it has {sorted(settings)}")
    for name, field in settings.items():
        if name not in given and field.is_required():
            raise ValueError(f"{cls.__name__} needs a value of its setting {name!r}")
        setattr(target, name, given.get(name, field.get_default(call_default_factory=True)))
