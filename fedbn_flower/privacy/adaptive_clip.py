"""A clip that goes to a quantile of the norms: Andrew et al. 2021 (arXiv 1905.03871), algorithm 1."""

import math
from dataclasses import dataclass

from ..core.errors import not_allowed
from .private_run import ADAPTIVE

RATE = 0.2
QUANTILE = 0.5
FIRST_CLIP = 0.1
COUNT_SHARE = 20
"""By what the expected number of answers is divided for the noise on the count, as the paper proposes."""


@dataclass(frozen=True)
class AdaptiveClip:
    """``C_{t+1} = C_t exp(-0.2 (b - 1/2))``, so half of the updates come to be longer than C.

    b is the share of updates of length C_t at most: ``1/2 + (sum_i (b_i - 1/2) + N(0, sigma_b^2)) / n``.

    Parameters
    ----------
    count_noise : float
        sigma_b, the deviation of the noise on the count.
    """

    count_noise: float

    @classmethod
    def for_cohort(cls, cohort: float) -> "AdaptiveClip":
        """Return it for an expected number of answers."""
        return cls(cohort / COUNT_SHARE)

    def is_possible(self, noise: float) -> bool:
        """Return whether the count, under its noise, leaves the updates any of what the noise z costs."""
        return 2 * self.count_noise > noise

    def check(self, noise: float) -> None:
        """Refuse noise that leaves the updates none; see `is_possible`.

        Raises
        ------
        UserError
            Says how many clients a round it needs.
        """
        if not self.is_possible(noise):
            least = COUNT_SHARE * noise / 2
            wanted = f"a number: with noise {noise:g} it needs more than {least:.0f} clients a round"
            raise not_allowed("dp-clip", ADAPTIVE, wanted)

    def noise_for_updates(self, noise: float) -> float:
        """Return z_Delta: noise with which updates and count together cost as much as z (theorem 1).

        ``z_Delta = (z^-2 - (2 sigma_b)^-2)^(-1/2)``: one client moves the count by 1/2.
        """
        return float((noise**-2 - (2 * self.count_noise) ** -2) ** -0.5)

    def next_clip(self, clip: float, share_within: float) -> float:
        """Return C_{t+1}."""
        return clip * math.exp(-RATE * (share_within - QUANTILE))
