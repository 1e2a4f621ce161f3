"""The extensions of a run: built-in ones, and those named as ``FILE.py:NAME``, separated by commas."""

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.errors import not_allowed
from ..extensions import EXTENSIONS, Extension, ServerHook, built_in
from ..names import Registry, absolute, short

EXTENSION = Registry("extension", EXTENSIONS, Extension)
NONE = "none"


def extension_names(text: str) -> list[str]:
    """Return the names in a comma-separated text; [] for ``none``."""
    return [] if text == NONE else [name.strip() for name in text.split(",")]


def extension_classes(
    config: Mapping[str, Any], named: Iterable[str] | None = None
) -> dict[str, type[ServerHook]]:
    """Return the extensions of a run, from the wire inwards, by their name in messages and files.

    Parameters
    ----------
    config : Mapping[str, Any]
        The run's configuration by key.
    named : Iterable[str], optional
        Which of the named ones; by default all.

    Raises
    ------
    UserError
        When one cannot be found, or two have the same name.
    """
    found = {cls.__name__.lower(): cls for cls in built_in(config)}
    for name in extension_names(config[EXTENSION.key]) if named is None else named:
        if short(name) in found:
            once = f"each name once, not {short(name)!r} twice"
            raise not_allowed(EXTENSION.key, config[EXTENSION.key], once)
        found[short(name)] = EXTENSION.find(name)
    return dict(sorted(found.items(), key=lambda item: item[1].place))


def absolute_extensions(text: str) -> str:
    """Return the names with absolute paths, for a process in another folder."""
    return ",".join(absolute(name, EXTENSION.names) for name in extension_names(text)) or NONE
