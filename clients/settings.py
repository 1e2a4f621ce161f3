"""Settings of an algorithm: declared once, as attributes of the class that uses them.

``mu: float = setting(0.01, ge=0, description="weight of the proximal term")`` gives a default, a range and
words for the help. The flag is the attribute's name with hyphens, or the setting's ``alias``. A subclass
changes a default by a plain assignment.
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
    """The settings of a class by attribute, inherited ones first.

    A method or a property without a setter takes the place of an inherited setting, which is then none. The
    rules' reader, which this package may not import, reads alike; a test compares the two.
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
    """The command line's and the messages' word for an attribute."""
    return field.alias or name.strip("_").replace("_", "-")


def values(cls: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a mapping by flag says of a class's settings, by attribute; other flags are no concern of it."""
    flags = {name: flag(name, field) for name, field in declared(cls).items()}
    return {name: given[word] for name, word in flags.items() if word in given}


def set_values(target: object, given: Mapping[str, Any]) -> None:
    """Set every setting of an object's class on it: to what is given by attribute, or to its default.

    Raises
    ------
    ValueError
        When a given one is not declared, or one without a default is not given.
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
