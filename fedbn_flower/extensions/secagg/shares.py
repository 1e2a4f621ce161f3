"""Secrets shared out among neighbours, and letters that only the addressee opens.

Shamir 1979, by ``pycryptodome``, over the field of 2^128 elements and so in halves of 16 bytes. Of its own a
false share gives a false secret, unnoticed. So whoever shares out a secret commits to each share, by its
digest: shares are uniform numbers of 32 bytes, of which a digest says nothing. Whoever tells another share is
found at once, and the others' are joined. The secret is known by its public key or its digest: if right
shares do not give it, it was shared out falsely. Letters are ChaCha20-Poly1305 (RFC 8439), by
``cryptography``.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from .masks import KeyPair

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
    points = [(int.from_bytes(share[:INDEX], "big"), share[INDEX:]) for share in shares.values()]
    chosen = list(islice(points, threshold))
    try:
        columns = zip(*([(index, part) for part in _parts(rest)] for index, rest in chosen), strict=True)
        secret = b"".join(Shamir.combine(list(column), False) for column in columns)
    except ValueError:  # of one index, of none, or of different lengths
        secret = b""
    if not _is_right(secret, public, digest):
        what = (
            f"the private key of {public.hex()[:16]}" if public else f"the seed of digest {digest.hex()[:16]}"
        )
        raise Tampered(f"its shares do not give {what}")
    return secret


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
