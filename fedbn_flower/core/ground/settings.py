"""Settings of a class, declared once in the class that uses them; and what a class overrides of its base.

``eta: float = setting(0.01, gt=0, alias="server-lr", description="server learning rate")`` gives the class an
argument ``eta``, a default, a range, a help text and the flag ``--server-lr``. Without an alias the flag is
the argument's name. `setting` is pydantic's ``Field``.

A subclass changes a default by assigning it: ``beta_1 = 0.0``. An attribute between underscores (``_mean_``)
is set by the argument without them, and does not collide with attributes of subclasses.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    create_model,
    field_validator,
)
from pydantic import Field as setting
from pydantic.fields import FieldInfo


def form(parse: Callable[[str], object], unset: str | None = None) -> AfterValidator:
    """Return the check that ``parse`` raises no ValueError for a setting's value, unless it is ``unset``."""

    def check(text: str) -> str:
        if text != unset:
            parse(text)
        return text

    return AfterValidator(check)


def finite_number(text: str) -> int | float | None:
    """Return a finite number, whole where it is written so; None of any other text."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if math.isfinite(number) else None
    return None


def overridden(cls: type, base: type, names: Iterable[str]) -> list[str]:
    """Return those of the names that mean something else in a class than in its base."""
    return [name for name in names if _function(cls, name) is not _function(base, name)]


def _function(cls: type, name: str) -> object:
    found = getattr(cls, name)
    return getattr(found, "__func__", found)  # a class method is bound anew each time


__all__ = ["setting"]


@lru_cache(maxsize=256)
def declared(cls: type) -> Mapping[str, FieldInfo]:
    """Return the settings of a class by attribute, inherited ones first.

    A method or a property without a setter overrides an inherited setting, which is then no longer one.
    """
    found: dict[str, FieldInfo] = {}
    for base in reversed(cls.__mro__):
        for attribute, value in vars(base).items():
            if isinstance(value, FieldInfo):
                found[attribute] = value
            elif isinstance(value, property) and value.fset:
                continue
            elif callable(value) or hasattr(value, "__get__"):  # a method of any kind, a property
                found.pop(attribute, None)
            elif attribute in found:
                found[attribute] = copy(found[attribute])
                found[attribute].default = value
    return found


def flag(attribute: str, field: FieldInfo) -> str:
    """Return the setting's name on the command line and in a run configuration."""
    return field.alias or flag_of(attribute.strip("_"))


def _hint(cls: type, attribute: str) -> Any:
    """Return the annotation of a setting.

    Others are not evaluated: they may name types that are imported only for type checkers.
    """
    for base in cls.__mro__:
        if isinstance(vars(base).get(attribute), FieldInfo) and attribute in inspect.get_annotations(base):
            return inspect.get_annotations(base, eval_str=True)[attribute]
    raise KeyError(attribute)


class Numbers(BaseModel):
    """The base of models whose numbers are finite, of 64 bits, and neither true nor false."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=True)
    bits: ClassVar[int] = 64
    """Of whole numbers without their sign; a drawn seed has 64."""

    @field_validator("*", mode="before")
    @classmethod
    def refuse_bools(cls, value: object, info: ValidationInfo) -> object:
        """Python takes true and false for 1 and 0."""
        kinds = kinds_of(cls.model_fields[str(info.field_name)])
        if isinstance(value, bool) and {int, float} & set(kinds) and bool not in kinds:
            raise ValueError("true and false are no numbers")
        return value

    @field_validator("*", mode="after")
    @classmethod
    def refuse_huge(cls, value: object) -> object:
        """Neither Flower nor NumPy carries them; they may have been text."""
        if isinstance(value, int) and value.bit_length() > cls.bits:
            raise ValueError(f"a number has {cls.bits} bits at most")
        return value


class _OfClass(Numbers):
    model_config = ConfigDict(validate_by_name=True, arbitrary_types_allowed=True)


@lru_cache(maxsize=256)
def model_of(cls: type) -> type[BaseModel]:
    """Return a pydantic model of the settings: its fields are the arguments, their aliases the flags."""
    fields: dict[str, Any] = {}
    for attribute, field in declared(cls).items():
        hint = _hint(cls, attribute)
        kind = Annotated[hint, *field.metadata] if field.metadata else hint
        named = setting(field.default, alias=flag(attribute, field), description=field.description)
        fields[attribute.strip("_")] = (kind, named)
    return create_model(cls.__name__, __base__=_OfClass, **fields)


def checked(cls: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return every setting of the class by attribute: the arguments, checked, and the other defaults.

    Raises
    ------
    ValueError
        For a value that is not allowed; the message names the argument, the value and what is allowed.
    """
    model = model_of(cls)
    try:
        values = model.model_validate(dict(arguments), by_name=True, by_alias=False)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        if name not in model.model_fields:
            raise ValueError(f"{cls.__name__} has no argument {name!r}") from None
        expected = allowed(model.model_fields[name])
        raise ValueError(f"{name}={arguments[name]!r} is not allowed; expected {expected}") from None
    return {attribute: getattr(values, attribute.strip("_")) for attribute in declared(cls)}


def kinds_of(field: FieldInfo) -> list[Any]:
    """Return the types that a setting's values may have, without None and without their bounds."""
    union = isinstance(field.annotation, UnionType) or get_origin(field.annotation) is Union
    kinds = get_args(field.annotation) if union else (field.annotation,)
    plain = [get_args(kind)[0] if get_origin(kind) is Annotated else kind for kind in kinds]
    return [kind for kind in plain if kind is not type(None)]


def allowed(field: FieldInfo) -> str:
    """Describe the allowed values of a setting: ``a number in [0, 1)``, ``one of 'sgd', 'adam'``."""
    kinds = kinds_of(field)
    words = [repr(word) for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    if get_origin(field.annotation) is Literal:
        return f"one of {', '.join(words)}"
    if bool in kinds:
        *first, last = ["true", "false", *words]
        return f"{', '.join(first)} or {last}"
    if note := next((note for note in field.metadata if isinstance(note, str)), ""):
        return note
    if not {int, float} & set(kinds):
        return "text"
    return " or ".join([_a_number("a number" if float in kinds else "a whole number", field), *words])


def _a_number(noun: str, field: FieldInfo) -> str:
    bounds = {
        name: getattr(note, name)
        for note in field.metadata
        for name in ("gt", "ge", "lt", "le")
        if getattr(note, name, None) is not None
    }
    lower = next(((name, bounds[name]) for name in ("gt", "ge") if name in bounds), None)
    upper = next(((name, bounds[name]) for name in ("lt", "le") if name in bounds), None)
    if lower and upper:
        left, right = "(["[lower[0] == "ge"], ")]"[upper[0] == "le"]
        return f"{noun} in {left}{_number(lower[1])}, {_number(upper[1])}{right}"
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    bound = lower or upper
    return f"{noun} {signs[bound[0]]} {_number(bound[1])}" if bound else noun


def _number(value: float) -> str:
    exponent = int(value).bit_length() - 1
    return f"2^{exponent}" if exponent > 16 and value == 2**exponent else f"{value:g}"


def flag_of(name: str) -> str:
    """A field's name on the command line and in a run configuration."""
    return name.replace("_", "-")


class KeyGroup(Numbers):
    """Keys of a run that belong together; the docstring of a subclass is their title.

    Text may be given as a number, as Python and TOML write it: a folder may be called 2024, a layer 0.
    """

    model_config = ConfigDict(alias_generator=flag_of, frozen=True)
    bits: ClassVar[int] = 63
    of_references: ClassVar[bool] = True
    """Whether they mean something in a run that a federation is compared with, in which all take part."""
    protects: ClassVar[bool] = False
    """Whether they say how what leaves a client is protected: nothing of that is in an estimate of time."""
    after: ClassVar[str] = ""
    """The key that these follow in ``--help``: in its section if that has the same title, else below it."""


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
