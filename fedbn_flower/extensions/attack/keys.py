"""The keys ``attack`` and ``attackers``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field as setting

from ...core.errors import not_allowed
from ...core.key_group import KeyGroup
from .names import FORM, NONE, OMNISCIENT, NamedAttack, named_attacks

SHARE = "0.2"
WHO = "a share in (0, 1), written with a point, or partitions with commas"
DRAW = 15
"""The purpose of the draw of attackers, after the seed and two zeros."""


class AttackKeys(KeyGroup):
    """Attacks"""

    after = "dp-simulate-population"

    attack: Annotated[str, FORM] = setting(
        NONE,
        description="what attackers do: change their update, or their training examples, or send what "
        "follows from the others' answers (alie, ipm, min-max)",
    )
    attackers: Annotated[str, WHO] = setting(
        SHARE, description="who attacks: a share of the clients that train, drawn once, or those named"
    )

    @property
    def attacks(self) -> tuple[NamedAttack, ...]:
        """The attacks by their names, on data first.

        Raises
        ------
        UserError
            When there are none of these names, or their arguments are not allowed.
        """
        return attacks_named(self.attack)

    @property
    def needs_all_answers(self) -> bool:
        """Whether attackers see the answers of the others, so that no worker may sum them."""
        return any(one.name in OMNISCIENT for one in self.attacks)


def attacks_named(text: str) -> tuple[NamedAttack, ...]:
    """Return `AttackKeys.attacks` of the key's value."""
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
