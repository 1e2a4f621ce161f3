"""What of a run's configuration secure aggregation does not go with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedbn_flower.strategies.guarantees import post_processes_mean

from ..core.errors import Conflict, Unused
from ..core.input_spec import InputSpec
from ..extensions.annex_keys import LEAST, MOST_BITS, sees_answers
from ..extensions.holdout import num_training
from ..extensions.selection import sampled
from ..names import CLIENT, STRATEGY
from .integers import MOST_CLIENTS

ON = "on"
LEAST_CLIP, MOST_CLIP = 1e-30, 1e30
"""Of updates: their steps, and the inverse of these, are then floats with all digits."""
ONE_BY_ONE: Mapping[str, tuple[object, str]] = {
    "mean": ("weighted", "'weighted': a robust mean looks at single answers"),
    "protocol": ("sync", "'sync': an answer's weight depends on its staleness"),
    "compress": ("none", "'none': codes do not add"),
    "compress-down": ("none", "'none'"),
    "devices": ("none", "'none'"),
    "selection": ("uniform", "'uniform': what a client reports of itself would choose"),
    "normalize": (False, "false: each client's own statistics would be told"),
    "inspect": (False, "false: each client's own counts would be told"),
    "leave-one-site-out": (False, "false: the client left out is measured by itself"),
    "holdout-clients": (0, "0: new clients are measured one by one"),
    "recalibrate": ("none", "'none': each client's own scores would be told"),
    "subgroups": ("", "none: metrics by subgroup are of single clients"),
    "unfreeze-at": (0, "0"),
}
"""Keys that have to be at these values, and why."""
OTHER_VALUES = (
    ("best", "cross-fitted", "it reads single clients' metrics"),
    ("decide-by", "median", "a median is of single clients"),
    ("predictions", "on", "scores tell of single examples"),
)
"""Values of keys that read single clients' metrics, and why."""
DEFAULTS: Mapping[str, object] = {"secagg-bits": 0, "secagg-threshold": 0, "secagg-min": LEAST}


def conflicts(config: Mapping[str, Any]) -> Iterator[Conflict]:
    """Yield what of a run's configuration secure aggregation does not go with."""
    if config["reference"] != "none":  # one without it is made of this
        return
    if (mode := config["secagg"]) == "off":
        given = (key for key, default in DEFAULTS.items() if config[key] != default)
        yield from (Unused(key, config[key], "without secagg; give secagg=on or plain") for key in given)
        return
    for key, wanted in _unfit(config):
        yield Conflict(key, config[key], f"{wanted} with secagg {mode!r}")


def _unfit(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, (value, wanted) in ONE_BY_ONE.items():
        if key in config and config[key] != value:
            yield key, wanted
    if not post_processes_mean(STRATEGY.find(config["strategy"])):
        yield "strategy", "a rule that declares post_processes_mean = True: others read single answers,"
    if CLIENT.find(config["client"]).pooled_by:
        yield "client", "another one: it sends moments that are pooled by numbers of inputs,"
    if config["dp"] not in ("none", "client"):
        yield "dp", "'none', or 'client', whose noise clients then add in shares,"
    key = "clip-update-norm" if config["dp"] == "none" else "dp-clip"
    clip = config.get(key)
    if not isinstance(clip, str) and not LEAST_CLIP <= (clip or 0) <= MOST_CLIP:
        within = f"a number from {LEAST_CLIP:g} to {MOST_CLIP:g}"
        yield key, f"{within}, the bound on an update by which it is rounded to whole numbers,"
    for key, value, why in OTHER_VALUES:
        if config[key] == value:
            yield key, f"another value: {why},"
    if sees_answers(config["attack"]):
        yield "attack", "another one: it follows from the others' answers, which nobody sees,"
    yield from _unfit_numbers(config)


def _unfit_numbers(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what of the numbers of clients and examples does not go together."""
    if config["secagg-bits"] == 1:
        yield "secagg-bits", f"0, or from 2 to {MOST_BITS},"
    if config["num-clients"] > MOST_CLIENTS:
        yield "num-clients", f"at most {MOST_CLIENTS}"
    by_size = config["weighting"] == "num-examples" and not config.get("max-num-examples")
    if by_size and InputSpec.parse(config["dataset"]):
        yield "max-num-examples", "the largest number of examples of a site, by which it is weighed,"
    most = sampled(config)
    if config["secagg-min"] > most:
        yield "secagg-min", f"at most {most}, the clients that train in a round,"
    evaluating = int(config["num-clients"] * config["fraction-evaluate"])
    summed = config["fraction-evaluate"] and config["eval-model"] != "local"
    if summed and evaluating < config["secagg-min"]:
        wanted = f"0, or a share of at least {config['secagg-min']} clients (secagg-min)"
        yield "fraction-evaluate", f"{wanted}: metrics are sums too,"
    counts = {"train": most} | ({"evaluate": evaluating} if summed else {})
    fewest, greatest = max(counts.values()) // 2 + 1, min(counts.values())
    if config["secagg-threshold"] and not fewest <= config["secagg-threshold"] <= greatest:
        whose = " and of ".join(f"the {count} clients that {what}" for what, count in counts.items())
        numbers, half = f"0, or from {fewest} to {greatest}", "more than half"
        if fewest > greatest:
            numbers, half = "0", "no number is more than half, and at most all,"
        yield "secagg-threshold", f"{numbers}: {half} of {whose} in a round,"
    if num_training(config) < config["secagg-min"]:
        yield "num-clients", f"at least {config['secagg-min']} (secagg-min)"
