"""What a client does in a session of secure aggregation: it shares out its secrets, masks, and helps unmask.

Its secrets are in the node's memory between the messages of a session, in the ``Context.state`` that Flower
keeps in RAM, and nowhere else. A session is answered once: keys are for one sharing, a mask is for one
vector, and with the first request to unmask all secrets of a session are forgotten, whatever comes of it. So
no server gets two vectors under one mask, or both secrets of a neighbour.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from numpy.typing import NDArray

from ...privacy.floors import Refused
from . import words
from .masks import LENGTH, KeyPair, agree, mask
from .shares import Tampered, digest_of, open_sealed, seal, split

NEXT, SESSION = "secagg-next", "secagg-session"
"""Entries of a node's state: the keys of the next session, and the secrets of the current one."""
SHARE_LENGTH = 4 + LENGTH


@dataclass(frozen=True)
class Secrets:
    """What a client has to itself in a session. It is not shown.

    Parameters
    ----------
    tag : str
        The session.
    me : int
        The client's number in it.
    mask_key, letter_key : bytes
        Private keys: with the first it agrees on masks with its neighbours, with the second on keys to
        letters.
    seed : bytes
        Of its own mask.
    own_share : bytes
        Its share of this seed.
    neighbours : tuple[int, ...]
        Their numbers; once the vector is masked, of those with whom it is.
    publics : bytes
        Their public keys, 64 bytes each.
    threshold, least : int
        How many shares give a secret, and of how many clients a sum is at least.
    masked : bool
        Whether the vector is masked.
    """

    tag: str
    me: int
    mask_key: bytes
    letter_key: bytes
    seed: bytes
    own_share: bytes
    neighbours: tuple[int, ...]
    publics: bytes
    threshold: int
    least: int
    masked: bool = False

    def __repr__(self) -> str:
        return f"Secrets(tag={self.tag!r}, me={self.me})"

    def public_of(self, place: int, letters: bool) -> bytes:
        """Return a public key of the neighbour at this place."""
        start = 2 * LENGTH * place + LENGTH * letters
        return self.publics[start : start + LENGTH]

    def letter_key_with(self, place: int) -> bytes:
        """Return the key to letters with the neighbour at this place."""
        pair = KeyPair.of(self.letter_key)
        return agree(pair, self.public_of(place, letters=True), f"letters {self.tag}".encode())

    def mask_seed_with(self, place: int) -> bytes:
        """Return the seed of the mask that it has in common with the neighbour at this place."""
        return agree(
            KeyPair.of(self.mask_key), self.public_of(place, letters=False), context_of_mask(self.tag)
        )

    def record(self) -> ConfigRecord:
        """Return it as an entry of the node's state."""
        values = {name: list(v) if isinstance(v, tuple) else v for name, v in vars(self).items()}
        return ConfigRecord(values)

    @classmethod
    def of(cls, state: RecordDict, tag: object) -> Secrets:
        """Return those of a session.

        Raises
        ------
        Refused
            When there are none: the client has restarted, or has forgotten them after it helped to unmask.
        """
        found = state.get(SESSION)
        if not isinstance(found, ConfigRecord) or found["tag"] != tag:
            raise Refused("secagg: this client has no part in this session, or not any more")
        values = {name: tuple(v) if isinstance(v, list) else v for name, v in found.items()}
        return cls(**values)  # type: ignore[arg-type]


def context_of_mask(tag: str) -> bytes:
    """Return what the masks of a session are agreed on for."""
    return f"mask {tag}".encode()


def associated(tag: str, sender: int, addressee: int) -> bytes:
    """Return what a letter is bound to."""
    return hashlib.sha256(f"{tag} {sender} {addressee}".encode()).digest()


def advertised(state: RecordDict) -> bytes:
    """Return the public keys of the client's next session, new ones: of masks, then of letters."""
    pairs = KeyPair.new(), KeyPair.new()
    state[NEXT] = ConfigRecord({"private": b"".join(pair.private_bytes() for pair in pairs)})
    return b"".join(pair.public for pair in pairs)


def shared_out(state: RecordDict, asked: ConfigRecord, least: int) -> ConfigRecord:
    """Begin a session: share out its secrets among the neighbours, in a letter to each.

    Parameters
    ----------
    state : RecordDict
        Of the node.
    asked : ConfigRecord
        What the server says of the session.
    least : int
        Of how many clients a sum is to be at least, for this client.

    Raises
    ------
    Refused
        When it has no keys for a session, or the session is one of too few.
    """
    private = state.pop(NEXT, None)
    state.pop(SESSION, None)
    if not isinstance(private, ConfigRecord):
        raise Refused("secagg: this client has no keys that it has not used")
    tag, me, threshold = str(asked[words.TAG]), _number(asked, words.ME), _number(asked, words.THRESHOLD)
    neighbours, publics = _numbers(asked, words.NEIGHBOURS), _bytes(asked, words.KEYS)
    found, holders = len(neighbours) + 1, [me, *neighbours]
    if len(set(holders)) < found or len(publics) != 2 * LENGTH * len(neighbours):
        raise Refused("secagg: the session's neighbours are not as many as their keys")
    if len({publics[i : i + 2 * LENGTH] for i in range(0, len(publics), 2 * LENGTH)}) < len(neighbours):
        raise Refused("secagg: two neighbours have the same keys")
    if found < least or not found < 2 * threshold <= 2 * found:
        raise Refused(f"secagg: {found} clients and {threshold} shares are too few; at least {least} clients")
    keys, seed = _bytes(private, "private"), os.urandom(LENGTH)
    of_seed = split(seed, threshold, holders)
    of_key = split(keys[:LENGTH], threshold, holders)
    session = Secrets(
        tag, me, keys[:LENGTH], keys[LENGTH:], seed, of_seed[me], neighbours, publics, threshold, least
    )
    letters = [
        seal(session.letter_key_with(place), of_seed[other] + of_key[other], associated(tag, me, other))
        for place, other in enumerate(neighbours)
    ]
    state[SESSION] = session.record()
    return ConfigRecord({words.LETTERS: letters, words.DIGEST: digest_of(seed)})


def masked(
    state: RecordDict, asked: ConfigRecord, vector: NDArray[np.unsignedinteger]
) -> NDArray[np.unsignedinteger]:
    """Return a client's vector under its masks, in a session that it has shared its secrets in.

    Raises
    ------
    Refused
        When it has no part in the session, has masked a vector already, or too few others have a part in it.
    """
    session = Secrets.of(state, asked.get(words.TAG))
    if session.masked:
        raise Refused("secagg: this client has masked its vector of this session")
    bits = np.unpackbits(np.frombuffer(_bytes(asked, words.PRESENT), np.uint8))
    present = [place for place, other in enumerate(session.neighbours) if other < bits.size and bits[other]]
    if len(present) + 1 < max(session.least, session.threshold):
        raise Refused(f"secagg: {len(present) + 1} clients are too few; at least {session.least}")
    seeds = {session.neighbours[place]: session.mask_seed_with(place) for place in present}
    found = mask(vector, session.seed, seeds, session.me)
    publics = (session.publics[2 * LENGTH * place : 2 * LENGTH * (place + 1)] for place in present)
    state[SESSION] = replace(
        session,
        neighbours=tuple(seeds),
        publics=b"".join(publics),
        masked=True,
    ).record()
    return found


def helped(state: RecordDict, asked: ConfigRecord) -> ConfigRecord:
    """Return what the server needs of this client to unmask the sum; forget the session.

    Of a neighbour it is one share: of the seed of its mask if it has answered, and else of its mask key.
    A letter that does not open is left out.

    Raises
    ------
    Refused
        When the client has not masked its vector of this session, or has helped before; when too few have
        answered, or the server is not consistent.
    """
    session = Secrets.of(state, asked.get(words.TAG))
    del state[SESSION]
    survivors, gone = _numbers(asked, words.SURVIVORS), _numbers(asked, words.GONE)
    letters = _letters(asked)
    if not session.masked:
        raise Refused("secagg: this client has not masked its vector of this session")
    if sorted((*survivors, *gone)) != sorted(session.neighbours) or len(letters) != len(session.neighbours):
        raise Refused("secagg: each neighbour has either answered or not")
    if len(survivors) + 1 < max(session.least, session.threshold):
        raise Refused(
            f"secagg: a sum of {len(survivors) + 1} clients is not unmasked; at least {session.least}"
        )
    shares = {session.me: session.own_share}
    for other, letter in zip((*survivors, *gone), letters, strict=True):
        key = session.letter_key_with(session.neighbours.index(other))
        try:
            both = open_sealed(key, letter, associated(session.tag, other, session.me))
        except Tampered:
            continue
        shares[other] = both[SHARE_LENGTH:] if other in gone else both[:SHARE_LENGTH]
    return ConfigRecord({words.NEIGHBOURS: list(shares), words.SHARES: list(shares.values())})


def _bytes(record: Mapping[str, object], name: str) -> bytes:
    value = record.get(name)
    if not isinstance(value, bytes):
        raise Refused(f"secagg: {name!r} is missing")
    return value


def _number(record: Mapping[str, object], name: str) -> int:
    value = record.get(name)
    if type(value) is not int or value < 0:
        raise Refused(f"secagg: {name!r} is no number")
    return value


def _numbers(record: Mapping[str, object], name: str) -> tuple[int, ...]:
    value = record.get(name, [])
    if not isinstance(value, list) or not all(type(number) is int and number >= 0 for number in value):
        raise Refused(f"secagg: {name!r} are no numbers")
    return tuple(value)


def _letters(record: Mapping[str, object]) -> Sequence[bytes]:
    value = record.get(words.LETTERS, [])
    if not isinstance(value, list) or not all(isinstance(letter, bytes) for letter in value):
        raise Refused("secagg: the letters are missing")
    return value
