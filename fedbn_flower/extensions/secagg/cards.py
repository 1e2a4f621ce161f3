"""What clients advertise, and who of them can have a part in one sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedbn_flower.strategies import ReplyRefused

from . import words
from .masks import LENGTH, KeyPair
from .signatures import WHO, is_fresh, who_of
from .wide import MOST_CLIENTS

LONGEST_SEAL = 256
"""Bytes; one has 36, and a signature."""
MOST_NAMES = 5
"""Of clients in a line."""
Names = Callable[[int], str]


@dataclass(frozen=True)
class Card:
    """What a client advertises.

    Parameters
    ----------
    keys : bytes
        Its public keys: of masks, and of letters.
    seal : bytes
        What it has signed them with; empty if it has not.
    partners : frozenset[bytes]
        The fingerprints of the keys that it knows of other sites.
    """

    keys: bytes
    seal: bytes = b""
    partners: frozenset[bytes] = frozenset()

    @classmethod
    def of(cls, keys: object, partners: object = b"") -> Card:
        """Return the card of what a client says.

        Raises
        ------
        ReplyRefused
            When the keys are not two different ones of 32 bytes, with which somebody can agree.
        """
        if not isinstance(keys, bytes) or not 0 <= len(keys) - 2 * LENGTH <= LONGEST_SEAL:
            raise ReplyRefused(f"{words.KEYS}: not two of {LENGTH} bytes")
        if len({first := keys[:LENGTH], second := keys[LENGTH : 2 * LENGTH]}) < 2:
            raise ReplyRefused(f"{words.KEYS}: not two of {LENGTH} bytes")
        for key in (first, second):
            try:
                KeyPair.new().exchange(key)
            except ValueError as error:
                raise ReplyRefused(f"{words.KEYS}: nobody can agree with it ({error})") from None
        if not isinstance(partners, bytes) or len(partners) > WHO * MOST_CLIENTS:
            raise ReplyRefused(f"{words.PARTNERS}: no fingerprints")
        known = frozenset(partners[start : start + WHO] for start in range(0, len(partners), WHO))
        return cls(keys[: 2 * LENGTH], keys[2 * LENGTH :], known)

    @property
    def both(self) -> tuple[bytes, bytes]:
        """The key of masks, and that of letters."""
        return self.keys[:LENGTH], self.keys[LENGTH:]

    def is_fresh(self, number: int) -> bool:
        """Return whether it is still taken in a round."""
        return is_fresh(self.seal, number)


def left_out(cards: Mapping[int, Card], least: int, name: Names) -> dict[int, str]:
    """Return why clients can have no part in a sum with the others, by node.

    One advertises another's keys, does not sign where others do, or the sites do not know each other's key.

    Parameters
    ----------
    cards : Mapping[int, Card]
        By node.
    least : int
        Of how many clients the sum is to be at least.
    name : callable
        Returns what a node is called.
    """
    found, first = {}, dict[bytes, int]()
    for node, card in cards.items():
        if any(first.setdefault(key, node) != node for key in card.both):
            found[node] = "secagg: it advertises the keys of another client"
    signing = {node: card for node, card in cards.items() if card.seal}
    others = [node for node in cards if node not in signing]
    if signing and others:  # they refuse a sum with each other
        if len(signing) < least:
            return found | dict.fromkeys(signing, "secagg: too few others sign their keys (secagg-key)")
        found |= dict.fromkeys(others, "secagg: it does not sign its keys (secagg-key)")
    return found | _strangers({node: card for node, card in signing.items() if node not in found}, name)


def _strangers(cards: Mapping[int, Card], name: Names) -> dict[int, str]:
    """Return why sites have no part in a sum: whoever does not know, or is not known to, the most others.

    Each site refuses a sum with one whose key it does not know. They say themselves whose they know. Of two
    who are at odds with each other alone it is the one that does not know the other's: so no site keeps
    another one out by saying so.
    """
    unknown = {
        node: {other for other in cards if other != node and who_of(cards[other].seal) not in card.partners}
        for node, card in cards.items()
    }
    found, left = dict[int, str](), dict.fromkeys(cards)
    while any(unknown[node] & left.keys() for node in left):
        unknown_to = {node: {other for other in left if node in unknown[other]} for node in left}
        worst = max(left, key=lambda n: (len(unknown_to[n] | unknown[n] & left.keys()), len(unknown[n])))
        del left[worst]
        lacking = [node for node in left if node in unknown_to[worst]]
        strangers = [node for node in left if node in unknown[worst]]
        if lacking:
            why = f"the secagg-partners of {names(lacking, name)} do not have its key"
        else:
            why = f"its secagg-partners do not have the key of {names(strangers, name)}"
        found[worst] = f"secagg: {why}"
    return found


def names(nodes: list[int], name: Names) -> str:
    """Return what nodes are called, the first `MOST_NAMES` of them."""
    more = f" and {len(nodes) - MOST_NAMES} more" if len(nodes) > MOST_NAMES else ""
    return ", ".join(map(name, nodes[:MOST_NAMES])) + more
