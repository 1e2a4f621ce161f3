"""Refuse unknown keys: former ones, settings of other algorithms, misspelt ones."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core.errors import UserError
from ..core.text import hint
from .gone import GONE, refuse_gone
from .keys import ALIASES, RUN_KEYS
from .named_algorithms import EXTENSION, NOT_GIVEN, REGISTRIES, Named, settings_of


def check_used(given: Mapping[str, Any], runs: Sequence[Iterable[Named]]) -> None:
    """Refuse keys that no run knows.

    Raises
    ------
    UserError
        For the first one; the message names the key that replaced it, the algorithms that have it, or the
        most similar key.
    """
    algorithms = list(dict.fromkeys(algorithm for run in runs for algorithm in run))
    used = {key for algorithm in algorithms for key in settings_of(algorithm.cls)}
    for key, value in given.items():
        if key in used or key in RUN_KEYS:
            continue
        refuse_gone(key, [value])
        if users := built_in_users(key):
            *others, last = (str(a) for r in REGISTRIES for a in algorithms if a.kind == r.key)
            named = f"{', '.join(others)} or {last}"
            raise UserError(f"{key}: {value} is not used by {named}; it is a setting of {', '.join(users)}")
        near = hint(key, [*RUN_KEYS, *sorted({*used, *built_in_settings()})])
        raise UserError(f"configuration: unknown name {key!r}{near}; see --help")


def built_in_users(key: str) -> list[str]:
    """The built-in algorithms that have this setting."""
    kinds = (*REGISTRIES, EXTENSION)
    users = {name for r in kinds for name, cls in r.names.items() if key in settings_of(cls)}
    return sorted(users)


def built_in_settings() -> list[str]:
    """The settings of all built-in algorithms, in their order."""
    kinds = (*REGISTRIES, EXTENSION)
    return list(dict.fromkeys(k for r in kinds for cls in r.names.values() for k in settings_of(cls)))


def keys_for_flower() -> dict[str, object]:
    """Every key that Flower is to let through, with its default; also aliases and keys that are gone."""
    settings = dict.fromkeys([*built_in_settings(), *ALIASES, *GONE], NOT_GIVEN)
    return {key: field.default for key, field in RUN_KEYS.items()} | settings
