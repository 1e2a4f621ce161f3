"""The secret key of a run, and the random numbers that derive from it.

Whoever knows the key knows who was sampled and can take the noise off. So it is in no configuration, log,
message or report: only in memory and, if the run has checkpoints, in a file of its own.

Numbers are the keystream of ChaCha20 (RFC 8439) under a key that HKDF (RFC 5869, SHA-256) derives from
(key, round, attempt, purpose) and, for noise under a secret key, from the sum that it is added to. So no
two sums have the same noise, also if a run's folder is copied and both copies go on.
"""

import hashlib
import math
import os
import secrets
from pathlib import Path
from typing import Literal

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from ..core.errors import UserError
from ..core.files import ONLY_OWNER, sync_folder, write_atomically

NAME = "privacy.key"
LENGTH = 32  # bytes: 256 bits
BLOCK = 2**15  # numbers that are made together

Purpose = Literal["sampling", "noise", "count", "examples", "metrics val", "metrics test"]


class Key:
    """A secret of 256 bits; by default a new one.

    Attributes
    ----------
    is_public : bool
        Whether it is that of a seed, whose noise is the same for every sum.
    """

    def __init__(self, secret: bytes | None = None, is_public: bool = False) -> None:
        self._secret = secrets.token_bytes(LENGTH) if secret is None else secret
        self.is_public = is_public

    @classmethod
    def of_seed(cls, seed: int) -> "Key":
        """Return the key of a public seed: for experiments that others are to repeat, no secret at all."""
        return cls(_derived(str(seed).encode(), "seed"), is_public=True)

    def of_client(self, partition_id: int) -> "Key":
        """Return the key of one client, from which no other follows."""
        return Key(_derived(self._secret, f"client {partition_id}"), self.is_public)

    @classmethod
    def load(cls, folder: Path) -> "Key | None":
        """Return the key in a folder, or None without one.

        Raises
        ------
        UserError
            When the file is not a key.
        """
        path = folder / NAME
        if not path.exists():
            return None
        try:
            secret = bytes.fromhex(path.read_text().strip())
        except (OSError, ValueError):
            secret = b""
        if len(secret) != LENGTH:
            raise UserError(f"resume: {str(path)!r} is not a key of {LENGTH} bytes")
        return cls(secret)

    def save(self, folder: Path) -> None:
        """Write the key into a folder, for its owner alone; it is on the disk when this returns."""
        folder.mkdir(exist_ok=True)
        write_atomically(folder / NAME, self._secret.hex() + "\n", ONLY_OWNER)
        sync_folder(folder)

    @staticmethod
    def destroy(folder: Path) -> None:
        """Overwrite and remove the key in a folder, if there is one."""
        path = folder / NAME
        if not path.exists():
            return
        with path.open("r+b", buffering=0) as file:
            file.write(bytes(path.stat().st_size))
            os.fsync(file.fileno())
        path.unlink()
        sync_folder(folder)

    def mark_of(self, total: NDArray, within: float) -> str:
        """Return the mark of a sum, by which `numbers` differ; empty under a public key.

        Without the key it tells nothing of the sum: it is a pseudorandom function of its digest.
        """
        if self.is_public:
            return ""
        content = hashlib.sha256(np.ascontiguousarray(total).data)
        content.update(repr(float(within)).encode())
        return _derived(self._secret, f"sum {content.hexdigest()}").hex()

    def numbers(self, server_round: int, attempt: int, purpose: Purpose, mark: str = "") -> "SecretNumbers":
        """Return the random numbers of one purpose in an attempt at a round, for a sum of that mark."""
        words = [purpose, str(server_round), str(attempt), *([mark] if mark else [])]
        return SecretNumbers(_derived(self._secret, " ".join(words)))


class SecretNumbers:
    """A stream of random numbers that nobody can tell from others without the key."""

    def __init__(self, secret: bytes) -> None:
        nonce = bytes(16)  # every stream has a key of its own
        self._cipher = Cipher(algorithms.ChaCha20(secret, nonce), mode=None).encryptor()

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return words of 64 bits."""
        return np.frombuffer(self._cipher.update(bytes(8 * count)), "<u8")

    def uniform(self, count: int) -> NDArray[np.float64]:
        """Return numbers from U[0, 1), multiples of 2^-53."""
        return np.asarray((self.words(count) >> np.uint64(11)) * 2.0**-53, np.float64)

    def normal(self, count: int) -> NDArray[np.float64]:
        """Return numbers from N(0, 1), by Box and Muller (1958); none is beyond 8.6."""
        half = -(-count // 2)
        radius = np.sqrt(-2 * np.log1p(-self.uniform(half)))
        angle = 2 * math.pi * self.uniform(half)
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]

    def add_noise(self, vector: NDArray[np.floating], deviation: float) -> None:
        """Add N(0, deviation^2) to every entry of a flat vector, in place."""
        for start in range(0, vector.size, BLOCK):
            part = vector[start : start + BLOCK]
            part += deviation * self.normal(part.size)


def _derived(secret: bytes, purpose: str) -> bytes:
    info = f"fedbn-flower {purpose}".encode()
    return HKDF(SHA256(), LENGTH, salt=None, info=info).derive(secret)
