"""Which paper an algorithm or a model is from: its class or function names the key of a BibTeX entry."""

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])


def paper(key: str) -> Callable[[F], F]:
    """Decorate a model's function with the key of its paper; a class has an attribute ``paper`` instead."""

    def named(function: F) -> F:
        vars(function)["paper"] = key
        return function

    return named


def paper_of(described: object) -> str:
    """Return the key of its paper, empty where it names none.

    A class names the paper of its own method, so a subclass does not inherit it: one that rests on the same
    paper says so.
    """
    return str(vars(described).get("paper", ""))
