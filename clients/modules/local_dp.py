"""Local differential privacy: a client adds the noise itself, before its update leaves.

The update ``D_i = x_i - x`` over all shared, trained parameters becomes ``clip(D_i, C) + N(0, (z C)^2 I)``.
No other party has to be trusted. Two updates differ by 2C, so epsilon is that of noise z / 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .dp_sgd import ROUNDING, Numbers


@dataclass(frozen=True)
class LocalMechanism:
    """The mechanism of one client in one round.

    Parameters
    ----------
    clip : float
        C, the bound on the L2 norm of an update.
    noise : float
        z, the deviation of the noise on each entry over C.
    numbers : Numbers
        The randomness of the noise. It has to be secret, and unique to this client and message.
    """

    clip: float
    noise: float
    numbers: Numbers

    def release(
        self, received: Mapping[str, NDArray[np.floating]], trained: Mapping[str, NDArray[np.floating]]
    ) -> dict[str, NDArray[np.floating]]:
        """Return the parameters to send instead of the trained ones: those received plus a noisy update.

        An update that is not finite counts 0. Both mappings have the same parameters, a tied one once.
        """
        updates = {
            name: np.reshape(trained[name], x.shape).astype(np.float64) - x for name, x in received.items()
        }
        norm = math.sqrt(sum(float(np.vdot(update, update)) for update in updates.values()))
        factor = min(1.0, self.clip * ROUNDING / norm) if norm else 1.0
        sent = {}
        for name, x in received.items():
            noise = self.noise * self.clip * self.numbers.normal(x.size).reshape(x.shape)
            update = factor * updates[name] if math.isfinite(norm) else 0.0
            sent[name] = (x + update + noise).astype(x.dtype)
        return sent
