"""Attacks by the text that names them: ``sign-flip:5``, ``alie``, ``backdoor:7+replacement:10``."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from types import SimpleNamespace
from typing import NamedTuple

NONE = "none"
ON_DATA = ("label-flip", "random-labels", "backdoor")
"""Those that change an attacker's training examples, and leave the rest to its training."""
ON_UPDATES = ("sign-flip", "gaussian", "replacement")
"""Those that change an attacker's own update, where it is."""
OMNISCIENT = ("alie", "ipm", "min-max")
"""Those that follow from the answers of all other clients of the round."""


def _attack(what: str, paper: str = "") -> SimpleNamespace:
    return SimpleNamespace(__doc__=what, paper=paper)


ATTACKS: Mapping[str, SimpleNamespace] = {
    "sign-flip": _attack("Sends its update times -S, with ``sign-flip:S``."),
    "gaussian": _attack("Sends noise from N(0, SIGMA^2), with ``gaussian:SIGMA``.", "blanchard2017krum"),
    "replacement": _attack("Sends its update times S, with ``replacement:S``.", "bagdasaryan2020backdoor"),
    "ipm": _attack("Sends the others' mean update times -E, with ``ipm:E``.", "xie2019ipm"),
    "alie": _attack(
        "Sends the others' mean update less Z standard deviations, with ``alie:Z``.",
        "baruch2019alie",
    ),
    "min-max": _attack(
        "Sends the farthest update that is as near to the others' as these are.", "shejwalkar2021manipulating"
    ),
    "label-flip": _attack("Trains on labels from C - 1 down instead of from 0 up."),
    "random-labels": _attack("Trains on labels drawn at random."),
    "backdoor": _attack("Trains a patch to mean a class, with ``backdoor:CLASS``.", "gu2017badnets"),
}
"""What each does, by its name without an argument."""
PAPERS: Mapping[str, str] = {name: one.paper for name, one in ATTACKS.items() if one.paper}
FORM = (
    "none, sign-flip:S, gaussian:SIGMA, replacement:S, ipm:E with numbers > 0, alie, alie:Z with Z >= 0, "
    "min-max, label-flip, random-labels, or backdoor:CLASS; one of the last three and one of the others may "
    "be joined by +"
)


class NamedAttack(NamedTuple):
    """An attack and its argument: a number, None where it needs none."""

    name: str
    argument: float | None = None

    @property
    def target(self) -> int:
        """The class of ``backdoor``."""
        return int(self.argument or 0)


def named_attacks(text: str) -> tuple[NamedAttack, ...]:
    """Return the attacks that a text of the `FORM` names: on data first, then on updates.

    Raises
    ------
    ValueError
        When it names none.
    """
    if text == NONE:
        return ()
    found = sorted(map(_named, text.split("+")), key=lambda one: one.name not in ON_DATA)
    if len(found) > 2 or len({one.name in ON_DATA for one in found}) < len(found):
        raise ValueError(f"expected {FORM}")
    return tuple(found)


def papers_of(text: str) -> list[str]:
    """Return the papers of the attacks of a text, of those that have any."""
    names = [one.partition(":")[0] for one in text.split("+")]
    return [PAPERS[name] for name in names if name in PAPERS]


def _named(text: str) -> NamedAttack:
    name, colon, rest = text.partition(":")
    match name:
        case "alie" | "min-max" | "label-flip" | "random-labels" if not colon:
            return NamedAttack(name)
        case "backdoor" if rest.isascii() and rest.isdigit():
            return NamedAttack(name, int(rest))
        case "sign-flip" | "gaussian" | "replacement" | "ipm" if 0 < _number(rest) < inf:
            return NamedAttack(name, _number(rest))
        case "alie" if 0 <= _number(rest) < inf:
            return NamedAttack(name, _number(rest))
    raise ValueError(f"expected {FORM}")


def _number(text: str) -> float:
    """Return a number; -1 of any other text."""
    try:
        return float(text)
    except ValueError:
        return -1.0
