"""Keys whose value is ``NAME``, ``NAME:ARGUMENT`` or ``FILE.py:NAME``."""

from collections.abc import Callable
from typing import Any, TypeVar

from ..core.errors import not_allowed
from .registries import COMPRESS, NORM, SELECTION
from .registry import Registry, absolute
from .user_code import as_user_error

WITH_ARGUMENT: dict[str, Registry[Any]] = {registry.key: registry for registry in (SELECTION, COMPRESS, NORM)}
"""What each of these keys names."""

T = TypeVar("T")


def made(registry: Registry[type[T]], text: str, *more: object) -> T:
    """Return an object of the class that a value names, made of the argument, empty without one, and more.

    Raises
    ------
    UserError
        When there is no such class, or its argument is not allowed.
    """
    name, _, argument = text.partition(":")
    if is_code(registry.key, text):
        name, argument = text, ""
    cls: Callable[..., T] = registry.find(name)
    try:
        with as_user_error(registry.key, text, but=(ValueError,)):
            return cls(argument, *more)
    except ValueError as error:
        raise not_allowed(registry.key, text, str(error)) from None


def is_code(key: str, text: str) -> bool:
    """Whether a value is code: ``FILE.py:NAME`` or ``package.module:NAME``, not ``NAME:ARGUMENT``."""
    known, defined = text.partition(":")[0], text.rpartition(":")[2]
    return ":" in text and known not in WITH_ARGUMENT[key].names and defined.isidentifier()


def absolute_name(key: str, text: str) -> str:
    """Return the same for a process in another folder."""
    return absolute(text) if is_code(key, text) else text
