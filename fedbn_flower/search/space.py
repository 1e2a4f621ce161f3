"""What is searched: ``KEY=LOW..HIGH`` and ``KEY=A,B,C``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from flwr.app import UserConfigValue
from pydantic.fields import FieldInfo

from ..config.keys import OWN_KEYS, Evaluation, Folder, Runtime, flag_of
from ..config.registry import absolute
from ..config.selection import NAMED, check_used, named, settings_of
from ..core.errors import UserError, not_allowed

FORM = "KEY=LOW..HIGH or KEY=A,B,..."

FIXED = frozenset(
    {"dataset", "num-clients", "partition", "reference", "rounds", "seed", "settings", "val-fraction"}
    | {flag_of(name) for group in (Evaluation, Folder, Runtime) for name in group.model_fields}
)
"""Keys that cannot be searched: trials with different ones could not be compared."""


@dataclass(frozen=True)
class Searched:
    """A key, and what it may be: one of the choices, or a number from low to high, log-uniform.

    Whole numbers are ints, others are floats; of choices ``low`` and ``high`` are 0.
    """

    key: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int)

    @property
    def ends(self) -> tuple[UserConfigValue, ...]:
        """All choices, or the least and the greatest number."""
        return self.choices or (self.low, self.high)

    def __str__(self) -> str:
        comma = ";" if any("," in choice for choice in self.choices) else ","
        return comma.join(self.choices) if self.choices else f"{self.low}..{self.high}"

    def read(self, text: str) -> UserConfigValue:
        """A value of it from text, as a table has it."""
        return text if self.choices else int(text) if self.whole else float(text)


def parse_space(texts: list[str], values: Mapping[str, Any]) -> tuple[Searched, ...]:
    """What ``--search`` was given, for a run with these keys and settings.

    Raises
    ------
    UserError
        For a form that is not allowed, an unknown key or one that cannot be searched, a key that is given
        or searched already, and for bounds that are none.
    """
    pairs = [text.partition("=") for text in texts]
    for text, (key, equals, what) in zip(texts, pairs, strict=True):
        if not (key and equals and what):
            raise not_allowed("search", text, FORM)
        if key in FIXED:
            raise UserError(f"search: {key!r} cannot be searched: trials could not be compared")
        if key in values:
            raise UserError(f"{key}: given twice, the second time in search")
    keys = [key for key, _, _ in pairs]
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise UserError(f"search: {min(twice)!r} is given twice")
    chosen = {key: _choices(key, what) for key, _, what in pairs if key in NAMED}
    runs = [named({**values, **{key: name}}) for key, names in chosen.items() for name in names]
    runs = runs or [named(values)]
    check_used({key: what for key, _, what in pairs}, runs)
    fields = {k: f for run in runs for a in run for k, f in settings_of(a.cls).items()} | OWN_KEYS
    return tuple(_searched(key, what, fields[key]) for key, _, what in pairs)


def _searched(key: str, text: str, field: FieldInfo) -> Searched:
    kinds = {field.annotation, *get_args(field.annotation)}
    numeric = bool(kinds & {int, float})
    if not numeric or ".." not in text:
        return Searched(key, _choices(key, text))
    kind = float if float in kinds else int
    parts = text.split("..")
    try:
        low, high = map(kind, parts)
    except ValueError:
        numbers = "whole numbers" if kind is int else "numbers"
        raise not_allowed("search", f"{key}={text}", f"LOW..HIGH, two {numbers}") from None
    if not 0 < low < high < float("inf"):
        told = "0 < LOW < HIGH, since the range is log-uniform (values are named as A,B,...)"
        raise not_allowed("search", f"{key}={text}", told)
    return Searched(key, (), low, high)


def _choices(key: str, text: str) -> tuple[str, ...]:
    choices = [part.strip() for part in text.split(";" if ";" in text else ",")]
    if len(choices) < 2 or len(set(choices)) < len(choices) or not all(choices):
        raise not_allowed("search", f"{key}={text}", f"{FORM}: at least two values, none twice")
    return tuple(absolute(choice, NAMED[key]) if key in NAMED else choice for choice in choices)
