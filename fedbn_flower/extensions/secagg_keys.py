"""The keys of secure aggregation."""

from typing import Literal

from ..core.ground.settings import KeyGroup, setting

LEAST = 3
MOST_BITS = 30


class SecAggKeys(KeyGroup):
    """Secure aggregation"""

    of_references = False
    protects = True
    after = "dp-simulate-population"

    secagg: Literal["off", "plain", "on"] = setting(
        "off",
        description="the server learns the sum of the clients' answers, and nothing else of anybody; plain "
        "sums the same integers without masks, to find settings and for tests",
    )
    secagg_bits: int = setting(
        0,
        ge=0,
        le=MOST_BITS,
        description="bits of each number of an update before it is summed; 0 for as many as keep the error "
        "of the mean below 0.0001 of clip-update-norm",
    )
    secagg_threshold: int = setting(
        0,
        ge=0,
        description="of how many clients shares unmask what one has sent; 0 for what a third of all may drop "
        "out of",
    )
    secagg_min: int = setting(
        LEAST, ge=2, description="of how many clients a sum is at least; with fewer the model stays as it is"
    )
