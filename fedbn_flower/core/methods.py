"""What a class says of its method: what it is for (``helps = ("label-skew",)``), and its paper."""

from collections.abc import Callable, Mapping
from typing import TypeVar

PURPOSES: Mapping[str, str] = {
    "baseline": "where to begin, and what other methods are compared with",
    "label-skew": "clients have other shares of the classes than others, or lack some",
    "feature-shift": "inputs look different at each client, as of other scanners or cameras",
    "unequal-work": "clients differ in how much they train, or how fast",
    "few-rounds": "rounds are expensive",
    "personal-models": "clients, or groups of them, want models that fit their own data",
    "fairness": "clients for which the model is worst are to count",
    "hostile-clients": "clients may be broken, or lie",
    "rare-classes": "some classes, labels or structures are rare",
    "wrong-labels": "some labels are wrong",
}
"""Every purpose, in the order of lists, with the situation that it names."""
HETEROGENEITY = "heterogeneity"
GROUPS: Mapping[str, tuple[str, ...]] = {HETEROGENEITY: ("label-skew", "feature-shift", "unequal-work")}
"""Words for several purposes."""


def purposes_of(described: object) -> tuple[str, ...]:
    """Return the purposes that a class names, the main one first.

    A subclass does not inherit them: it is another method.
    """
    return tuple(vars(described).get("helps", ()))


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
