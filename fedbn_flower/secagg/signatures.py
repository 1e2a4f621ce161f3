"""Signatures of sites: whose keys those of a sum are, and that all sites are told the same of it.

The server carries all messages, so without these it may put keys of its own in the place of a neighbour's, or
name other survivors to one site than to another. A site with a key of its own signs two things:

- the public keys that it advertises, with the run and the round (Bonawitz et al. 2017, ePrint 2017/281).
  Its partners know its key from a file, not from the server, so it stands for the node.
- once the vectors are in, what it was told of the sum: the keys of all clients, what to do with which model,
  who has answered and who has not (the consistency check of the same). No site tells a share before it has
  seen as many such signatures, its own among them, as a sum has clients at least and a secret needs.

Those are more than half of the sum's clients and each signs once, so no two lists get as many signatures
unless sites lie too. And whoever has signed was there with the keys that the others mask with: so a sum that
is unmasked has at least so many sites of the list in it, whatever the server has invented or repeated.

A server may give one site another model, by which the others send 0 (Pasquini et al. 2022, arXiv 2111.07380).
That the others see it would not help the one. So what a site was told is in the masks, as proposed there:
masks of sites that were told different things do not cancel.

What clients advertise, and who of them can have a part in one sum.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
    load_pem_private_key,
    load_pem_public_key,
    load_ssh_private_key,
    load_ssh_public_key,
)
from flwr.app import Context
from numpy.typing import NDArray

from fedbn_flower.strategies import ReplyRefused

from ..core.errors import not_allowed
from ..core.files import path_of
from ..privacy.floors import SECAGG_KEY, SECAGG_PARTNERS, Refused
from . import words
from .cryptography import LENGTH, KeyPair
from .integers import MOST_CLIENTS

PRIVATE = "a private key of Ed25519 or an elliptic curve, PEM or OpenSSH, without a password"
PUBLIC = "public keys of Ed25519 or an elliptic curve, PEM or OpenSSH"
NUMBER, WHO = 4, 32
"""Bytes of a seal that say the round, and whose it is; the rest is the signature."""
FRESH = 1
"""How many rounds before a sum's own its keys may be advertised."""
BLOCKS = re.compile(rb"-----BEGIN [^-]*-----.*?-----END [^-]*-----", re.DOTALL)

PrivateKey = Ed25519PrivateKey | EllipticCurvePrivateKey
PublicKey = Ed25519PublicKey | EllipticCurvePublicKey
Found = TypeVar("Found")


@dataclass(frozen=True)
class Signer:
    """A site that signs in a round of a run, and knows its partners' keys.

    Parameters
    ----------
    private : PrivateKey
        Its own. It is not shown.
    partners : Mapping[bytes, PublicKey]
        Those of others, by fingerprint.
    run, number : int
        The run, and the round.
    """

    private: PrivateKey = field(repr=False)
    partners: Mapping[bytes, PublicKey] = field(repr=False)
    run: int
    number: int

    @classmethod
    def of(cls, context: Context, number: int) -> Signer | None:
        """Return that of a node in a round; None where it has no key.

        Raises
        ------
        Refused
            When a file of its node config is missing, cannot be read, or has no key that can be used.
        """
        config = context.node_config
        if SECAGG_KEY not in config:
            return None
        private = _read(SECAGG_KEY, str(config[SECAGG_KEY]), PRIVATE, _private_in)
        partners = _read(SECAGG_PARTNERS, str(config[SECAGG_PARTNERS]), PUBLIC, _publics_in)
        own = fingerprint(private.public_key())
        others = {who: key for who, key in partners.items() if who != own}
        if not others:
            raise _mistake(SECAGG_PARTNERS, config[SECAGG_PARTNERS], f"{PUBLIC}, of other sites too")
        return cls(private, others, context.run_id, number)

    @property
    def me(self) -> bytes:
        """The fingerprint of its own key."""
        return fingerprint(self.private.public_key())

    @property
    def public(self) -> bytes:
        """Its own public key."""
        return _encoded(self.private.public_key())

    def sign(self, statement: bytes) -> bytes:
        """Return its signature on a statement."""
        if isinstance(self.private, Ed25519PrivateKey):
            return self.private.sign(statement)
        return self.private.sign(statement, ECDSA(SHA384()))

    def is_signed(self, statement: bytes, who: bytes, signature: bytes) -> bool:
        """Return whether a signature on a statement is that of this partner."""
        key = self.partners.get(who)
        return key is not None and _is_signed(key, statement, signature)

    def seal(self, keys: bytes) -> bytes:
        """Return what goes with public keys that are advertised: the round, who does it, and a signature."""
        of_keys = _of_keys(self.run, self.number, keys)
        return self.number.to_bytes(NUMBER, "big") + self.me + self.sign(of_keys)

    def signers(self, neighbours: Sequence[int], publics: Sequence[bytes], seals: Sequence[bytes]) -> bytes:
        """Return the fingerprints of those whose keys the public ones of a sum are, 32 bytes each.

        Raises
        ------
        Refused
            When a neighbour's keys are not signed by a partner, for this run, and this round or the last one;
            or two neighbours' by the same.
        """
        if len(seals) != len(neighbours):
            raise Refused(f"secagg: keys of neighbours are not signed ({SECAGG_PARTNERS})")
        found = [self._signer(*of_one) for of_one in zip(neighbours, publics, seals, strict=True)]
        if len(set(found)) < len(found):
            raise Refused("secagg: the keys of two neighbours are signed by one site")
        return b"".join(found)

    def _signer(self, neighbour: int, keys: bytes, seal: bytes) -> bytes:
        number, who, signature = sealed_in(seal), who_of(seal), seal[NUMBER + WHO :]
        what = f"secagg: the keys of client {neighbour} of the sum are"
        if not signature:
            raise Refused(f"{what} not signed ({SECAGG_PARTNERS})")
        if who not in self.partners:
            raise Refused(f"{what} signed by {who.hex()[:16]}, which is none of {SECAGG_PARTNERS}")
        if not self.number - FRESH <= number <= self.number:
            raise Refused(f"{what} signed for round {number}, and this is round {self.number}")
        if not self.is_signed(_of_keys(self.run, number, keys), who, signature):
            raise Refused(f"{what} not those that {who.hex()[:16]} has signed in round {number} of this run")
        return who


def sealed_in(seal: bytes) -> int:
    """Return the round of a seal."""
    return int.from_bytes(seal[:NUMBER], "big")


def who_of(seal: bytes) -> bytes:
    """Return the fingerprint of the key that a seal was made with."""
    return seal[NUMBER : NUMBER + WHO]


def is_signed_by(who: bytes, public: bytes, statement: bytes, signature: bytes) -> bool:
    """Return whether a statement is signed with a public key that has this fingerprint."""
    try:
        key = load_der_public_key(public)
    except (ValueError, UnsupportedAlgorithm):
        return False
    return isinstance(key, PublicKey) and fingerprint(key) == who and _is_signed(key, statement, signature)


def is_sealed_by(public: bytes, keys: bytes, seal: bytes, run: int) -> bool:
    """Return whether a seal on public keys is that of who has this one, in the seal's round of a run."""
    statement = _of_keys(run, sealed_in(seal), keys)
    return is_signed_by(who_of(seal), public, statement, seal[NUMBER + WHO :])


def is_fresh(seal: bytes, number: int) -> bool:
    """Return whether keys with this seal are still taken in a round; those without one always are."""
    return not seal or sealed_in(seal) >= number - FRESH


def fingerprint(key: PublicKey) -> bytes:
    """Return the SHA-256 of a public key, 32 bytes."""
    return hashlib.sha256(_encoded(key)).digest()


def statement_of(*parts: bytes) -> bytes:
    """Return the digest of what is signed of a sum: of its parts, and of where each ends."""
    whole = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hashlib.sha256(b"fedbn-flower secagg sum" + whole).digest()


def digest_of_heard(arrays: Mapping[str, NDArray], *configs: Mapping[str, object]) -> bytes:
    """Return the digest of a model that a site got, and of what it was told to do with it."""
    whole = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        whole.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        whole.update(array.data)
    for config in configs:
        whole.update(repr(sorted(config.items())).encode())
    return whole.digest()


def _encoded(key: PublicKey) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _is_signed(key: PublicKey, statement: bytes, signature: bytes) -> bool:
    try:
        if isinstance(key, Ed25519PublicKey):
            key.verify(signature, statement)
        else:
            key.verify(signature, statement, ECDSA(SHA384()))
    except InvalidSignature:
        return False
    return True


def _of_keys(run: int, number: int, keys: bytes) -> bytes:
    return f"fedbn-flower secagg keys, run {run}, round {number}: ".encode() + keys


def _read(key: str, name: str, wanted: str, read: Callable[[Path], Found]) -> Found:
    try:
        return read(path_of(name))
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:  # TypeError: it has a password
        why = error.strerror if isinstance(error, OSError) else error
        raise _mistake(key, name, f"{wanted} (in the node config): {why}") from None


def _mistake(key: str, name: object, wanted: str) -> Refused:
    return Refused(str(not_allowed(key, name, wanted)))


def _private_in(path: Path) -> PrivateKey:
    data = path.read_bytes()
    load = load_ssh_private_key if b"OPENSSH PRIVATE KEY" in data else load_pem_private_key
    key = load(data, None)
    if not isinstance(key, PrivateKey):
        raise ValueError(f"{type(key).__name__} is another kind of key")
    return key


def _publics_in(path: Path) -> dict[bytes, PublicKey]:
    """Return the keys of a file, or of all files of a folder, by fingerprint."""
    visible = (one for one in path.iterdir() if one.name[0] != ".") if path.is_dir() else [path]
    found: dict[bytes, PublicKey] = {}
    for file in sorted(visible):
        data = file.read_bytes()
        blocks = [(load_pem_public_key, block) for block in BLOCKS.findall(data)]
        lines = (line for line in BLOCKS.sub(b"", data).splitlines() if line.strip() and line[:1] != b"#")
        for load, text in (*blocks, *((load_ssh_public_key, line) for line in lines)):
            try:
                key = load(text)
            except (ValueError, UnsupportedAlgorithm):
                raise ValueError(f"{file.name} has something else") from None
            if not isinstance(key, PublicKey):
                raise ValueError(f"{file.name} has another kind of key")
            found[fingerprint(key)] = key
    return found


LONGEST_SEAL = 256
"""Bytes; one has 36, and a signature."""
LONGEST_PUBLIC = 512
"""Bytes; one has 120."""
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
    public : bytes
        The key that it signs with.
    partners : frozenset[bytes]
        The fingerprints of the keys that it knows of other sites.
    """

    keys: bytes
    seal: bytes = b""
    public: bytes = b""
    partners: frozenset[bytes] = frozenset()

    @classmethod
    def of(cls, said: Mapping[str, object]) -> Card:
        """Return the card of what a client says.

        Raises
        ------
        ReplyRefused
            When the keys are not two different ones of 32 bytes, with which somebody can agree.
        """
        keys, partners, public = (said.get(n, b"") for n in (words.KEYS, words.PARTNERS, words.PUBLIC))
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
        if not isinstance(public, bytes) or len(public) > LONGEST_PUBLIC:
            raise ReplyRefused(f"{words.PUBLIC}: no key")
        known = frozenset(partners[start : start + WHO] for start in range(0, len(partners), WHO))
        return cls(keys[: 2 * LENGTH], keys[2 * LENGTH :], public, known)

    @property
    def both(self) -> tuple[bytes, bytes]:
        """The key of masks, and that of letters."""
        return self.keys[:LENGTH], self.keys[LENGTH:]

    def is_fresh(self, number: int) -> bool:
        """Return whether it is still taken in a round."""
        return is_fresh(self.seal, number)

    def is_sealed(self, run: int, number: int) -> bool:
        """Return whether its keys are signed, if they are, with its own key and in time."""
        if not self.seal:
            return True
        in_time = self.is_fresh(number) and sealed_in(self.seal) <= number
        return in_time and is_sealed_by(self.public, self.keys, self.seal, run)


def left_out(cards: Mapping[int, Card], run: int, number: int, least: int, name: Names) -> dict[int, str]:
    """Return why clients can have no part in a sum with the others, by node.

    One advertises another's keys, does not sign where others do or not with a key of its own, or the sites do
    not know each other's key.

    Parameters
    ----------
    cards : Mapping[int, Card]
        By node.
    run, number : int
        The run, and the round.
    least : int
        Of how many clients the sum is to be at least.
    name : callable
        Returns what a node is called.
    """
    found, first = {}, dict[bytes, int]()
    for node, card in cards.items():
        if any(first.setdefault(key, node) != node for key in card.both):
            found[node] = "secagg: it advertises the keys of another client"
        elif not card.is_sealed(run, number):
            found[node] = "secagg: its keys are not signed with its key in this round of the run"
        elif card.seal and (other := first.setdefault(who_of(card.seal), node)) != node:
            found[node] = f"secagg: it has the key of {name(other)} (secagg-key)"
    signing = {node: card for node, card in cards.items() if card.seal and node not in found}
    others = [node for node, card in cards.items() if not card.seal]
    if signing and others:  # they refuse a sum with each other
        if len(signing) < least:
            return found | dict.fromkeys(signing, "secagg: too few others sign their keys (secagg-key)")
        found |= dict.fromkeys(others, "secagg: it does not sign its keys (secagg-key)")
    return found | _strangers(signing, name)


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
