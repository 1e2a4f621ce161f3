"""Attacks by their names, and who attacks: ``sign-flip:5``, ``alie``, ``backdoor:7+replacement:10``."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from ..core.errors import not_allowed
from ..extensions.annex_keys import ATTACKS, FORM, NONE, WHO

ON_DATA = ("label-flip", "random-labels", "backdoor")
"""Those that change an attacker's training examples, and leave the rest to its training."""
ON_UPDATES = ("sign-flip", "gaussian", "replacement")
"""Those that change an attacker's own update, where it is."""
DRAW = 15
"""The purpose of the draw of attackers, after the seed and two zeros."""


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
    found = (ATTACKS.get(one.partition(":")[0]) for one in text.split("+"))
    return [attack.paper for attack in found if attack and attack.paper]


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


def attacks_named(text: str) -> tuple[NamedAttack, ...]:
    """Return the attacks that the value of ``attack`` names, on data first.

    Raises
    ------
    UserError
        When there are none of these names, or their arguments are not allowed.
    """
    try:
        return named_attacks(text)
    except ValueError:
        raise not_allowed("attack", text, FORM) from None


def attackers_drawn(text: str, seed: int, training: Sequence[int]) -> frozenset[int]:
    """Return who attacks, by partition: those that are listed, or a share of those that train.

    A share is rounded down, to one client at least. The same seed draws the same, on every runtime.

    Parameters
    ----------
    text : str
        ``attackers``.
    seed : int
        The run's.
    training : Sequence[int]
        The partitions that train, in order.

    Raises
    ------
    UserError
        For a share that is none, a client that does not train, or if nobody honest is left.
    """
    found = _listed(text)
    if found is None:
        drawn = np.random.default_rng([seed, 0, 0, DRAW]).permutation(training)
        found = frozenset(map(int, drawn[: max(1, int(len(training) * _share(text) + 1e-9))]))
    if stranger := sorted(found - set(training)):
        raise not_allowed("attackers", text, f"clients that train, of which {stranger[0]} is none")
    if len(found) == len(training):
        raise not_allowed("attackers", text, f"less than all {len(training)} clients that train")
    return found


def _listed(text: str) -> frozenset[int] | None:
    """Return the partitions that a text lists; None if it is a share.

    Raises
    ------
    UserError
        When it is neither, or names a client twice.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        _share(text)
        return None
    listed = frozenset(map(int, parts))
    if len(listed) < len(parts):
        raise not_allowed("attackers", text, "each client once")
    return listed


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise not_allowed("attackers", text, WHO)
    return share
