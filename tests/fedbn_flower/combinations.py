"""Which built-in algorithms go together, and few combinations in which every two that do meet."""

from itertools import combinations, product

import numpy as np

from clients import CLIENTS, LOSSES, OBJECTIVES
from strategies import STRATEGIES

KINDS = ("strategy", "client", "objective", "loss")
TABLES = (STRATEGIES, CLIENTS, OBJECTIVES, LOSSES)


def is_allowed(names):
    """Whether they go together; the last of them may be left out."""
    chosen = {"problem": "auto", **dict(zip(KINDS, names, strict=False))}
    if chosen["client"] == "alone" and not STRATEGIES[chosen["strategy"]].goes_without_model:
        return False
    if STRATEGIES[chosen["strategy"]].keeps_models and chosen["client"] in {"fbn", "hbn"}:
        return False
    if chosen["strategy"] == "fedap" and chosen["client"] in {"silobn", "fedbn", "lg-fedavg"}:
        return False  # it compares clients by the statistics that they share
    if "loss" in chosen and LOSSES[chosen["loss"]].of_masks:
        return False
    classes = [table[name] for table, name in zip(TABLES, names, strict=False)]
    needs = [(key, wanted) for cls in classes for key, wanted in getattr(cls, "requires", {}).items()]
    return all(chosen[key] in wanted for key, wanted in needs if key in chosen)


ALLOWED = [
    (*names, loss)
    for names in product(*TABLES[:-1])
    if is_allowed(names)
    for loss in LOSSES
    if is_allowed((*names, loss))
]


def pairs(names):
    return combinations(zip(KINDS, names, strict=True), 2)


def covering():
    """Greedily: the one with the most pairs that have not met, until all have."""
    numbers = {}
    met = np.array([[numbers.setdefault(p, len(numbers)) for p in pairs(names)] for names in ALLOWED])
    left, new = np.ones(len(numbers), int), np.full(len(met), met.shape[1])
    while new.any():
        best = new.argmax()
        yield dict(zip(KINDS, ALLOWED[best], strict=True))
        for column, pair in zip(met.T, met[best], strict=True):
            new -= left[pair] * (column == pair)
            left[pair] = 0


COVER = list(covering())
"""Every allowed pair of names is in one of them."""


def every_name(chosen):
    """Greedily: the one with the most names that have not been chosen, until all have."""
    left = {pair for names in chosen for pair in names.items()}
    while left:
        best = max(chosen, key=lambda names: len(names.items() & left))
        left -= best.items()
        yield best


EACH = list(every_name(COVER))
"""Of those, few in which every name is in one."""


def title(chosen):
    return "-".join(chosen.values())
