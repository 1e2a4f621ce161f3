"""Masks that cancel in the sum: Bonawitz et al. 2017 (ePrint 2017/281), Bell et al. 2020 (ePrint 2020/704).

Client u sends ``y_u = q_u + PRG(b_u) + sum_{v<u} PRG(s_uv) - sum_{v>u} PRG(s_uv)  mod 2^m``, where ``b_u`` is
its self-mask's seed and ``s_uv`` is what u and its neighbour v agree on. In the sum over both, ``PRG(s_uv)``
cancels. The server takes off ``PRG(b_u)`` of those that survive, and what survivors have added for neighbours
that dropped out.

All of the cryptography is of the package ``cryptography``: X25519 (RFC 7748), HKDF (RFC 5869) with SHA-256,
and ChaCha20 (RFC 8439) as PRG. A seed is for one vector: with a second one it gives away their difference.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
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
