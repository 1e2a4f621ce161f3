"""What methods are for: a class names the difficulties that it helps with, as ``helps = ("label-skew",)``."""

from collections.abc import Mapping

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
