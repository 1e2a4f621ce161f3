"""Masks that cancel in the sum: Bonawitz et al. 2017 (ePrint 2017/281), Bell et al. 2020 (ePrint 2020/704).

Client u sends ``y_u = q_u + PRG(b_u) + sum_{v<u} PRG(s_uv) - sum_{v>u} PRG(s_uv)  mod 2^m``, where ``b_u`` is
its self-mask's seed and ``s_uv`` is what u and its neighbour v agree on. In the sum over both, ``PRG(s_uv)``
cancels. The server takes off ``PRG(b_u)`` of those that survive, and what survivors have added for neighbours
that dropped out.

All of the cryptography is of the package ``cryptography``: X25519 (RFC 7748), HKDF (RFC 5869) with SHA-256,
and ChaCha20 (RFC 8439) as PRG. A seed is for one vector: with a second one it gives away their difference.

Secrets shared out among neighbours, and letters that only the addressee opens.

Shamir 1979, over the field of 2^128 elements and so in halves of 16 bytes: shared out by ``pycryptodome``,
and joined with weights that are found once for each set of points, where its ``combine`` finds them anew for
each half of each secret. Of its own a false share gives a false secret, unnoticed. So whoever shares out a
secret commits to each share, by its digest: shares are uniform numbers of 32 bytes, of which a digest says
nothing. Whoever tells another share is found at once, and the others' are joined. The secret is known by its
public key or its digest: if right shares do not give it, it was shared out falsely. Letters are
ChaCha20-Poly1305 (RFC 8439), by ``cryptography``.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from operator import xor

import numpy as np
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

LENGTH = 32
"""Bytes of a key, public or private, and of a seed."""
BLOCK = 2**17
"""Bytes of keystream that are made together: they stay in the processor's cache."""
DTYPES = {32: np.uint32, 64: np.uint64}
"""Of a vector modulo ``2^bits``."""

Vector = NDArray[np.uint32] | NDArray[np.uint64]


class KeyPair:
    """A private key of X25519 and its public one. It neither shows nor pickles the private one."""

    __slots__ = ("_secret", "public")

    def __init__(self, private: X25519PrivateKey) -> None:
        self._secret = private
        self.public: bytes = private.public_key().public_bytes_raw()

    @classmethod
    def new(cls) -> KeyPair:
        """Return a pair from the operating system's random numbers."""
        return cls(X25519PrivateKey.generate())

    @classmethod
    def of(cls, private: bytes) -> KeyPair:
        """Return the pair of a private key of 32 bytes.

        Raises
        ------
        ValueError
            For another length.
        """
        return cls(X25519PrivateKey.from_private_bytes(private))

    def private_bytes(self) -> bytes:
        """Return the private key, to be shared out: whoever has it is who has the pair."""
        return self._secret.private_bytes_raw()

    def exchange(self, other_public: bytes) -> bytes:
        """Return X25519 of the private key and another's public one; not uniform, see `agree`.

        Raises
        ------
        ValueError
            For a public key of another length, or of low order, with which everybody would agree on the same.
        """
        return self._secret.exchange(X25519PublicKey.from_public_bytes(other_public))

    def __reduce__(self) -> str:
        raise TypeError("a private key is not pickled")

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public.hex()})"


def agree(pair: KeyPair, other_public: bytes, context: bytes) -> bytes:
    """Return the 32 bytes that both sides of a pair of keys find, and nobody else.

    Parameters
    ----------
    pair : KeyPair
        One's own.
    other_public : bytes
        The other's public key.
    context : bytes
        What the bytes are for: the run, the round, the purpose. Other contexts give independent ones.

    Raises
    ------
    ValueError
        As `KeyPair.exchange`.
    """
    keys = b"".join(sorted([pair.public, other_public]))  # RFC 7748, section 6.1: with both public keys
    kdf = HKDF(SHA256(), LENGTH, salt=None, info=b"fedbn-flower secagg " + keys + context)
    return kdf.derive(pair.exchange(other_public))


class _Stream:
    """The keystream of a seed as words modulo ``2^bits``, block by block."""

    def __init__(self, seed: bytes, dtype: np.dtype) -> None:
        self._cipher = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor()  # of counter 0
        self._zeros = np.zeros(BLOCK, np.uint8)
        self._buffer = np.empty(BLOCK, np.uint8)
        self._dtype = dtype

    def words(self, count: int) -> NDArray:
        """Return the next words, `BLOCK` bytes at most; they last until the next call."""
        size = count * self._dtype.itemsize
        self._cipher.update_into(self._zeros[:size].data, self._buffer[:size].data)
        words = self._buffer[:size].view(self._dtype)
        return words if sys.byteorder == "little" else words.byteswap()


def expand(seed: bytes, count: int, bits: int) -> Vector:
    """Return uniform numbers below ``2^bits``: the keystream of a seed in little-endian words.

    Parameters
    ----------
    seed : bytes
        32 bytes.
    count : int
        How many.
    bits : int
        32 or 64.

    Raises
    ------
    ValueError
        For a seed of another length, or other bits.
    """
    if bits not in DTYPES:
        raise ValueError(f"bits {bits}: must be 32 or 64")
    words: Vector = np.zeros(count, DTYPES[bits])
    _apply(words, [(seed, 1)])
    return words


def mask(vector: Vector, self_seed: bytes, pair_seeds: Mapping[int, bytes], me: int) -> Vector:
    """Return a client's vector under its masks, modulo 2^32 or 2^64 by its dtype.

    Parameters
    ----------
    vector : NDArray
        The client's integers q, of any shape; it stays as it is.
    self_seed : bytes
        b, of this vector alone.
    pair_seeds : Mapping[int, bytes]
        What it has agreed on with each neighbour, for this vector alone.
    me : int
        The client, of a numbering that everybody has.

    Raises
    ------
    ValueError
        For a seed that comes twice, or that the client has with itself: masks would take each other off.
    """
    seeds = [self_seed, *pair_seeds.values()]
    if me in pair_seeds or len(set(seeds)) < len(seeds):
        raise ValueError("a seed masks one vector, of two different clients, once")
    masked = vector.copy()
    _apply(masked, [(self_seed, 1), *((seed, _sign(me, other)) for other, seed in pair_seeds.items())])
    return masked


def remove(
    total: Vector, self_seeds: Iterable[bytes], dropped: Iterable[tuple[int, int, bytes]] = ()
) -> Vector:
    """Return the sum of the survivors' integers from the sum of what they sent.

    Parameters
    ----------
    total : NDArray
        The sum of the survivors' masked vectors, modulo 2^32 or 2^64 by its dtype; it stays as it is.
    self_seeds : Iterable[bytes]
        Of all survivors.
    dropped : Iterable[tuple[int, int, bytes]]
        A survivor, a neighbour of its that dropped out, and what they had agreed on: each such pair.
    """
    masks = [(seed, -1) for seed in self_seeds]
    masks += [(seed, -_sign(survivor, gone)) for survivor, gone, seed in dropped]
    plain = total.copy()
    _apply(plain, masks)
    return plain


def _sign(me: int, other: int) -> int:
    """Return with which sign a client adds the mask that it has in common with another one."""
    return 1 if other < me else -1


def _apply(vector: Vector, masks: Iterable[tuple[bytes, int]]) -> None:
    """Add the keystreams of seeds to a contiguous vector, each with its sign, in place."""
    flat = vector.reshape(-1)
    if not np.shares_memory(flat, vector) and vector.size:
        raise ValueError("the vector must be contiguous")
    dtype = vector.dtype.newbyteorder("<")
    streams = [(_Stream(seed, dtype), np.add if sign > 0 else np.subtract) for seed, sign in masks]
    for part in _blocks(flat):
        for stream, operation in streams:
            operation(part, stream.words(part.size), out=part)


def _blocks(flat: NDArray) -> Iterator[NDArray]:
    length = BLOCK // flat.itemsize
    return (flat[start : start + length] for start in range(0, flat.size, length))


PART = 16
"""Bytes that are shared together."""
INDEX = 4
"""Bytes of a share that say at which point it is."""
NONCE = 12
"""Bytes of a letter that no other letter has."""
DIGEST = 16
"""Bytes of a commitment: another share with the same one takes 2^128 tries. A dealer can find two in 2^64,
and gains nothing: the secret is then not right, and that is the dealer's doing."""


class Tampered(ValueError):
    """What somebody sent is not what was to be sent: forged, swapped, cut short, or made up."""


def digest_of(seed: bytes) -> bytes:
    """Return by what a seed of 32 random bytes is told before anybody but its owner has it."""
    return hashlib.sha256(b"fedbn-flower secagg seed" + seed).digest()


def commitment(share: bytes) -> bytes:
    """Return by what a share is told before anybody but its dealer and its holder has it."""
    return hashlib.sha256(b"fedbn-flower secagg share" + share).digest()[:DIGEST]


def split(secret: bytes, threshold: int, holders: Sequence[int]) -> dict[int, bytes]:
    """Share out a secret: any ``threshold`` of the shares give it, fewer give nothing at all.

    Parameters
    ----------
    secret : bytes
        A multiple of 16 bytes.
    threshold : int
        From 1 to the number of holders.
    holders : Sequence[int]
        Those who get a share each.

    Returns
    -------
    dict[int, bytes]
        The share of each holder: four bytes longer than the secret.

    Raises
    ------
    ValueError
        For another length, threshold, or a holder who comes twice.
    """
    if not 1 <= threshold <= len(holders) or len(set(holders)) < len(holders):
        raise ValueError(f"{threshold} of {len(holders)} shares: must be from 1 to the number of holders")
    if not secret or len(secret) % PART:
        raise ValueError(f"a secret of {len(secret)} bytes: must be a multiple of {PART}")
    columns = [Shamir.split(threshold, len(holders), part, False) for part in _parts(secret)]
    return {
        holder: index.to_bytes(INDEX, "big") + b"".join(part for _, part in row)
        for holder, row in zip(holders, zip(*columns, strict=True), strict=True)
        for index in [row[0][0]]
    }


def join(shares: Mapping[int, bytes], threshold: int, *, public: bytes = b"", digest: bytes = b"") -> bytes:
    """Return the secret of which these are shares, those that are told as they were dealt.

    Parameters
    ----------
    shares : Mapping[int, bytes]
        By holder.
    threshold : int
        As the secret was split.
    public, digest : bytes
        Of the two one: the public key of a secret that is a private key, or its `digest_of`.

    Raises
    ------
    Tampered
        When these shares do not give that secret: it was shared out falsely. The message says which one.
    ValueError
        When there are fewer shares than the threshold.
    """
    if len(shares) < threshold:
        raise ValueError(f"{len(shares)} shares: {threshold} are needed")
    chosen = sorted(shares.values())[:threshold]  # by index: many secrets are then joined at the same ones
    try:
        weights = weights_at_zero(tuple(int.from_bytes(share[:INDEX], "big") for share in chosen))
        columns = zip(*(_parts(share[INDEX:]) for share in chosen), strict=True)
        secret = b"".join(_weighted(weights, column) for column in columns)
    except ValueError:  # of one index, of none, or of different lengths
        secret = b""
    if not _is_right(secret, public, digest):
        what = (
            f"the private key of {public.hex()[:16]}" if public else f"the seed of digest {digest.hex()[:16]}"
        )
        raise Tampered(f"its shares do not give {what}")
    return secret


FIELD = 2**128 + 0b1000_0111
"""The polynomial over bits modulo which elements are multiplied: x^128 + x^7 + x^2 + x + 1."""


@lru_cache
def weights_at_zero(points: tuple[int, ...]) -> tuple[int, ...]:
    """Return Lagrange's weights, with which the values of a polynomial at these points sum to its value at 0.

    Raises
    ------
    ValueError
        When a point comes twice.
    """
    if len(set(points)) < len(points):
        raise ValueError("a point comes twice")
    found = []
    for point in points:
        others = [other for other in points if other != point]
        differences = reduce(_times, (point ^ other for other in others), 1)
        found.append(_times(reduce(_times, others, 1), _inverse(differences)))
    return tuple(found)


def _weighted(weights: Sequence[int], parts: Sequence[bytes]) -> bytes:
    """Return the sum of parts times weights."""
    products = (_times(int.from_bytes(part, "big"), w) for w, part in zip(weights, parts, strict=True))
    return reduce(xor, products).to_bytes(PART, "big")


def _times(a: int, b: int) -> int:
    """Return a product in the field; its time is that of the second factor's bits."""
    product = 0
    while b:
        if b & 1:
            product ^= a
        a <<= 1
        if a >> 128:
            a ^= FIELD
        b >>= 1
    return product


def _inverse(a: int) -> int:
    """Return 1 / a in the field, of a > 0, by Euclid's algorithm, in which r is s a and rest is t a."""
    r, s, rest, t = FIELD, 0, a, 1
    while rest > 1:
        if r < rest:
            r, s, rest, t = rest, t, r, s
        shift = r.bit_length() - rest.bit_length()
        r, s = r ^ rest << shift, s ^ t << shift
    return t


def seal(key: bytes, plaintext: bytes, associated: bytes) -> bytes:
    """Return a letter: encrypted, and bound to what it goes with.

    Parameters
    ----------
    key : bytes
        32 bytes, of a sender and an addressee.
    plaintext : bytes
        What is written.
    associated : bytes
        Run, round, sender, addressee: a letter with others does not open.
    """
    nonce = secrets.token_bytes(NONCE)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, plaintext, associated)


def open_sealed(key: bytes, sealed: bytes, associated: bytes) -> bytes:
    """Return what a letter says.

    Raises
    ------
    Tampered
        When it is not a whole letter under this key, with this beside it.
    """
    try:
        return ChaCha20Poly1305(key).decrypt(sealed[:NONCE], sealed[NONCE:], associated)
    except (InvalidTag, ValueError) as error:  # ValueError: it is shorter than a nonce
        raise Tampered("a letter that is not for this addressee, or not whole") from error


def _parts(whole: bytes) -> Iterator[bytes]:
    return (whole[start : start + PART] for start in range(0, len(whole), PART))


def _is_right(secret: bytes, public: bytes, digest: bytes) -> bool:
    if public:
        return len(secret) == len(public) and hmac.compare_digest(KeyPair.of(secret).public, public)
    return hmac.compare_digest(digest_of(secret), digest)
