"""The keys of annexes: attacks, secure aggregation and asynchronous protocols."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any, Literal

from fedbn_flower.strategies.aggregation.buffers import FORM as PROTOCOLS
from fedbn_flower.strategies.aggregation.buffers import SYNC, AsynchronousProtocol, protocol_of

from ..core.ground.settings import KeyGroup, form, setting

NONE = "none"
OMNISCIENT: Mapping[str, int] = {"alie": 2, "ipm": 1, "min-max": 2}
"""Attacks computed from the answers of all other clients of the round, with the least number of honest ones:
a standard deviation needs two."""


def _attack(what: str, paper: str = "") -> SimpleNamespace:
    return SimpleNamespace(__doc__=what, paper=paper)


ATTACKS: Mapping[str, SimpleNamespace] = {
    "sign-flip": _attack("Sends its update times -S, with ``sign-flip:S``."),
    "gaussian": _attack("Sends noise from N(0, SIGMA^2), with ``gaussian:SIGMA``.", "blanchard2017krum"),
    "replacement": _attack("Sends its update times S, with ``replacement:S``.", "bagdasaryan2020backdoor"),
    "ipm": _attack("Sends the others' mean update times -E, with ``ipm:E``.", "xie2019ipm"),
    "alie": _attack(
        "Sends the others' mean update less Z standard deviations, with ``alie:Z``.",
        "baruch2019alie",
    ),
    "min-max": _attack(
        "Sends the farthest update that is as near to the others' as these are.", "shejwalkar2021manipulating"
    ),
    "label-flip": _attack("Trains on labels from C - 1 down instead of from 0 up."),
    "random-labels": _attack("Trains on labels drawn at random."),
    "backdoor": _attack("Trains a patch to mean a class, with ``backdoor:CLASS``.", "gu2017badnets"),
}
"""What each does, by its name without an argument."""
FORM = (
    "none, sign-flip:S, gaussian:SIGMA, replacement:S, ipm:E with numbers > 0, alie, alie:Z with Z >= 0, "
    "min-max, label-flip, random-labels, or backdoor:CLASS; one of the last three and one of the others may "
    "be joined by +"
)
SHARE = "0.2"
WHO = "a share in (0, 1), written with a point, or partitions with commas"


def sees_answers(text: str) -> bool:
    """Return whether the attack that a text names uses the other clients' answers."""
    return not {one.partition(":")[0] for one in text.split("+")}.isdisjoint(OMNISCIENT)


class AttackKeys(KeyGroup):
    """Attacks"""

    after = "dp-simulate-population"

    attack: Annotated[str, FORM] = setting(
        NONE,
        description="what attackers do: change their update, or their training examples, or send what "
        "follows from the others' answers (alie, ipm, min-max)",
    )
    attackers: Annotated[str, WHO] = setting(
        SHARE, description="who attacks: a share of the clients that train, drawn once, or those named"
    )

    @property
    def needs_all_answers(self) -> bool:
        """Whether attackers see the other clients' answers, so that no worker may sum them."""
        return sees_answers(self.attack)


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


ALPHA = 0.6


class ProtocolKeys(KeyGroup):
    """Asynchronous protocols"""

    of_references = False
    after = "over-select"

    protocol: Annotated[str, PROTOCOLS, form(partial(protocol_of, alpha=ALPHA))] = setting(
        SYNC,
        description="when the model is updated: after the clients of a round, after any K answers of "
        "clients that train all the time, or after each answer",
    )
    concurrency: int = setting(
        0, ge=0, description="how many clients train at once, with a protocol other than sync"
    )
    mixing: float = setting(
        ALPHA, gt=0, le=1, description="alpha of fedasync: the weight of a fresh answer against the model"
    )

    @property
    def asynchronous(self) -> AsynchronousProtocol | None:
        """The protocol; None if it is ``sync``."""
        return protocol_of(self.protocol, self.mixing)


def asynchronous(config: Mapping[str, Any]) -> AsynchronousProtocol | None:
    """Return `ProtocolKeys.asynchronous` of a configuration by key."""
    return protocol_of(config["protocol"], config["mixing"])
