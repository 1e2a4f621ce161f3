"""Every setting of an algorithm takes the numbers that its documentation says, and no others."""

import re
from functools import cache

import pytest
import torch

from fedbn_flower.config.named_algorithms import REGISTRIES, flags, settings_of
from fedbn_flower.core.errors import UserError
from fedbn_flower.core.ground.settings import allowed, checked

NUMBER = re.compile(
    r"a (?P<whole>whole )?number"
    r"(?: in (?P<left>[\[(])(?P<low>\S+), (?P<high>\S+)(?P<right>[\])])| (?P<sign>[<>]=?) (?P<bound>\S+))?"
)
DECLARED = {
    (registry.key, name, key): (cls, attribute)
    for registry in REGISTRIES
    for name, cls in registry.names.items()
    for key, attribute in flags(cls).items()
    if key in settings_of(cls) and NUMBER.match(allowed(settings_of(cls)[key]))
}


def value_of(text):
    base, power, exponent = text.partition("^")
    return float(base) ** int(exponent) if power else float(text)


def is_within(words, value):
    """Whether a number is one of those that these words allow."""
    lower, upper = value >= -1e300, value <= 1e300
    if words["sign"]:
        bound = value_of(words["bound"])
        return {">": value > bound, ">=": value >= bound, "<": value < bound, "<=": value <= bound}[
            words["sign"]
        ]
    if words["left"]:
        low, high = value_of(words["low"]), value_of(words["high"])
        lower = value >= low if words["left"] == "[" else value > low
        upper = value <= high if words["right"] == "]" else value < high
    return lower and upper


def around(words):
    """Numbers at, and on both sides of, each of the bounds."""
    bounds = [value_of(words[name]) for name in ("low", "high", "bound") if words[name]]
    if words["whole"]:
        return [int(b) + step for b in bounds for step in (-2, -1, 0, 1, 2)]
    return [b + step for b in bounds for step in (-1, -1e-3, 0, 1e-3, 1)] + [-1e9]


@pytest.mark.parametrize("kind", dict.fromkeys(kind for kind, *_ in DECLARED))
def test_a_setting_takes_what_its_words_say_and_nothing_else(kind):
    for declared in (one for one in DECLARED if one[0] == kind):
        check(declared)


def check(declared):
    cls, attribute = DECLARED[declared]
    field = settings_of(cls)[declared[-1]]
    words = NUMBER.match(allowed(field))
    name = attribute.strip("_")
    others = (
        {"client_learning_rate": 0.1} if name != "client_learning_rate" and declared[1] == "qfedavg" else {}
    )
    for value in [*around(words), float("nan"), float("inf")]:
        if value == value and abs(value) != float("inf") and is_within(words, value):
            assert checked(cls, {**others, name: value})[attribute] == value
        else:
            with pytest.raises(ValueError, match=f"^{name}="):
                checked(cls, {**others, name: value})


PFEDME = {"client": "pfedme"}
REFUSED = {
    "fedprox's pull": (
        {"objective": "fedprox", "mu": 25.0, "client_lr": 0.1},
        "mu: 25.0 is not allowed; expected less than 20, 2 over client-lr: steps would lead ever farther "
        "from the shared model",
    ),
    "fedprox's pull with momentum": (
        {"objective": "fedprox", "mu": 38.0, "client_lr": 0.1, "client_momentum": 0.9},
        "mu: 38.0 is not allowed; expected less than 38, 2 (1 + client-momentum) over client-lr: steps would "
        "lead ever farther from the shared model",
    ),
    "fedspeed's pull": (
        {"objective": "fedspeed", "speed_lambda": 0.04, "client_lr": 0.1},
        "speed-lambda: 0.04 is not allowed; expected more than 0.05, client-lr over 2: steps would lead ever "
        "farther from the shared model",
    ),
    "pfedme's shared model": (
        {**PFEDME, "pfedme_lambda": 10.0, "client_lr": 0.2},
        "pfedme-lambda: 10.0 is not allowed; expected less than 10, 2 over client-lr: the shared model would "
        "diverge",
    ),
    "pfedme's personal model": (
        {**PFEDME, "pfedme_lambda": 20.0, "pfedme_lr": 0.1, "client_lr": 0.01},
        "pfedme-lr: 0.1 is not allowed; expected less than 0.1, 2 over pfedme-lambda: the personal model "
        "would diverge",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_one_line(refusal, case):
    keys, line = REFUSED[case]
    assert refusal(**keys) == line


PULLS = {
    "fedprox": ({}, "mu"),
    "feddyn": ({"strategy": "feddyn"}, "alpha"),
    "fedacg": ({"strategy": "fedacg"}, "acg_beta"),
    "fedadmm": ({"strategy": "fedadmm"}, "admm_rho"),
    "feddc": ({"strategy": "feddc"}, "dc_alpha"),
    "fedspeed": ({}, "speed_lambda"),
    "fedsmoo": ({"strategy": "fedsmoo"}, "smoo_beta"),
    "ditto": ({"client": "ditto"}, "ditto_lambda"),
}


@cache
def comes_back(weight, momentum):
    """Whether 300 steps of SGD of rate 1/4 on weight/2 w^2 alone lead nearer to 0."""
    w = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([w], 0.25, momentum)
    for _ in range(300):
        w.grad = weight * w.detach()
        optimizer.step()
    return abs(w.item()) < 1


@pytest.mark.parametrize(
    ("name", "momentum"), [(n, m) for n in PULLS for m in (0.0, 0.5) if n != "feddc" or not m]
)
def test_a_pull_that_throws_farther_than_it_came_is_refused(configured, name, momentum):
    """By the limit at which 300 steps of torch's SGD on the term alone do not come back."""
    keys, setting = PULLS[name]
    keys = {"client_lr": 0.25, "client_momentum": momentum, **keys}
    keys |= {} if name == "ditto" else {"objective": name}
    for weight in (7.9 * (1 + momentum), 8.1 * (1 + momentum)):
        value = 1 / weight if name in ("fedspeed", "fedsmoo") else weight
        if comes_back(weight, momentum):
            configured(**keys, **{setting: value})
        else:
            configured(**keys, **{setting: value}, batch_size=0, local_epochs=1)
            if name != "feddc":
                configured(**{**keys, "client_momentum": 0.0}, **{setting: value}, client_optimizer="adam")
            with pytest.raises(UserError, match=f"^{setting.replace('_', '-')}: .* ever farther"):
                configured(**keys, **{setting: value})
        assert comes_back(weight, momentum) == (weight < 8 * (1 + momentum))


def test_pfedme_just_below_is_taken(configured):
    """With Adam, pfedme-lr is no factor of the distance."""
    for keys in (
        {"pfedme_lambda": 19.9, "client_lr": 0.1},
        {"pfedme_lambda": 19.9, "pfedme_lr": 0.1, "client_lr": 0.01},
        {"pfedme_lambda": 10.0, "pfedme_lr": 1.0, "client_lr": 0.01, "client_optimizer": "adam"},
    ):
        configured(**PFEDME, **keys)
