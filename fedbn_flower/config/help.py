"""Descriptions of every key, for ``--help`` and the reference."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from pydantic.fields import FieldInfo

from ..core.ground.settings import allowed
from .keys import SECTIONS
from .named_algorithms import REGISTRIES, settings_of


@dataclass(frozen=True)
class Flag:
    """A key with its default, allowed values and description, as text."""

    key: str
    value: object = None
    allowed: str = ""
    meaning: str = ""

    @property
    def default(self) -> str:
        """Its default as written on the command line; empty without one."""
        return as_text(self.value)


def common_flags() -> dict[str, list[Flag]]:
    """Return the keys of the run, by the title of their section."""
    return {title: _flags(keys) for title, keys in SECTIONS.items()}


def inherited_flags() -> dict[str, list[Flag]]:
    """The settings that all algorithms of a kind have, by title."""
    bases = {f"Every {r.key}": settings_of(r.base) for r in REGISTRIES if r.base}
    return {title: _flags(settings) for title, settings in bases.items() if settings}


@cache  # a parser has those of every class
def flags_of(cls: type) -> list[Flag]:
    """The settings of an algorithm, except those inherited unchanged from its kind."""
    common = _inherited()
    return [flag for flag in _flags(settings_of(cls)) if flag not in common]


@cache  # compared with the flags of every algorithm
def _inherited() -> frozenset[Flag]:
    return frozenset(flag for flags in inherited_flags().values() for flag in flags)


def first_line(described: object) -> str:
    """The first line of an object's docstring."""
    return (described.__doc__ or "").strip().partition("\n")[0]


def as_text(value: object) -> str:
    """A value as written on the command line."""
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def _flags(fields: Mapping[str, FieldInfo]) -> list[Flag]:
    return [
        Flag(
            key,
            None if field.is_required() else field.default,
            allowed(field),
            field.description or "",
        )
        for key, field in fields.items()
    ]
