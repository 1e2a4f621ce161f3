"""Settings of an algorithm: declared once, as attributes of the class that uses them.

``mu: float = setting(0.01, ge=0, description="weight of the proximal term")`` gives a default, a range and
a help text. The flag is the attribute's name with hyphens, or the setting's ``alias``. A subclass changes a
default by a plain assignment.
"""

from collections.abc import Mapping
from copy import copy
from functools import lru_cache
from typing import Any

from pydantic import Field as setting
from pydantic.fields import FieldInfo

__all__ = ["declared", "flag", "set_values", "setting", "values"]


@lru_cache(maxsize=64)
def declared(cls: type) -> Mapping[str, FieldInfo]:
    """Return the settings of a class by attribute, inherited ones first.

    A method or a property without a setter overrides an inherited setting, which is then no longer one.
    `strategies.settings`, which this package must not import, has the same function; a test compares the two.
    """
    found: dict[str, FieldInfo] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, FieldInfo):
                found[name] = value
            elif isinstance(value, property) and value.fset:
                continue
            elif callable(value) or hasattr(value, "__get__"):  # a method of any kind, a property
                found.pop(name, None)
            elif name in found:
                found[name] = copy(found[name])
                found[name].default = value
    return found


def flag(name: str, field: FieldInfo) -> str:
    """Return the setting's name on the command line and in messages."""
    return field.alias or name.strip("_").replace("_", "-")


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
