"""`flower_defaults`: the same arguments as Flower's classes, with the same defaults and the same step."""

import inspect
from types import SimpleNamespace

import flwr.serverapp.strategy as flower
import numpy as np
import pytest

from fedbn_flower import strategies
from fedbn_flower.strategies import RuleState, flower_defaults

NAMES = flower_defaults.__all__


def defaults(cls):
    return {
        name: p.default for name, p in inspect.signature(cls).parameters.items() if p.default is not p.empty
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_argument_of_flowers_has_flowers_default(name):
    theirs, ours = defaults(getattr(flower, name)), defaults(getattr(flower_defaults, name))
    assert {key: ours[key] for key in theirs if ours[key] is not None} == {
        key: value for key, value in theirs.items() if ours[key] is not None
    }
    assert all(theirs[key] is None or callable(theirs[key]) for key in theirs if ours[key] is None)
    made = getattr(flower_defaults, name)()
    for key in ("eta", "server_momentum"):
        if key in theirs:
            assert getattr(made, key) == theirs[key]


def test_they_are_all_rules_of_flower_whose_defaults_are_others_here():
    """Of the rules of both libraries; FedYogi differs in ``bias_correction``, which Flower has not."""
    both = [name for name in strategies.__all__ if name.startswith("Fed") and hasattr(flower, name)]
    other = {
        name
        for name in both
        for key, value in defaults(getattr(flower, name)).items()
        if isinstance(value, int | float) and defaults(getattr(strategies, name))[key] != value
    }
    assert other | {"FedYogi"} == set(NAMES)


def test_fedyogis_first_step_is_flowers():
    """By the formula of Flower, from m = v = 0: eta (1 - b1) D / (sqrt((1 - b2) D^2) + tau)."""
    rule = flower_defaults.FedYogi()
    delta = np.array([0.5, -2.0])
    step = rule.server_step(delta.copy(), RuleState(), SimpleNamespace(update=1))
    expected = 0.01 * 0.1 * delta / (np.sqrt(0.01 * delta**2) + 1e-3)
    np.testing.assert_allclose(step, expected, rtol=1e-12)
