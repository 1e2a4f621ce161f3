"""What a client's vector has no room for, and what no clients' vectors can sum to."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedbn_flower.secagg.plan import Plan, _difference, _state
from fedbn_flower.strategies.aggregation.vectors import Layout

PLAN = Plan(1.0, 3, 0, 10, False, ("loss eval-examples",), ("eval-examples",), ("auroc 3 number",))
WRONG = {
    "loss": ({"loss": math.nan}, {}),
    "loss of a run that diverged": ({"loss": 1e30}, {}),
    "auroc": ({"loss": 1.0}, {"auroc": np.array([1.0, math.inf, 0.0])}),
    "a number of examples": ({"eval-examples": 1e19}, {}),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_client_does_not_send_what_would_spoil_the_sum_of_all(what):
    metrics, states = WRONG[what]
    PLAN.evaluated(5, {"loss": 2.0, "eval-examples": 5}, {"auroc": np.ones(3)})
    with pytest.raises(ValueError, match=rf"secagg: {what.partition(' of ')[0]}.* is not finite, or beyond"):
        PLAN.evaluated(5, metrics, states)


@pytest.mark.parametrize(
    "wrong", [{"clip": 0.0}, {"clip": math.inf}, {"clients": 0}, {"cap": -1}, {"clients": None}]
)
def test_a_plan_is_heard_as_it_was_told_unless_it_cannot_be(wrong):
    assert Plan.heard(replace(PLAN, cap=0).told()) == replace(PLAN, cap=0)
    with pytest.raises(ValueError, match="secagg: (no numbers can be|the message does not say how numbers)"):
        Plan.heard(replace(PLAN, **wrong).told())


def test_a_states_name_may_have_blanks():
    assert _state("area under it 3 number") == ("area under it", 3, "number")


def test_a_difference_is_in_float64():
    """In float32 1e8 - 1 is 1e8."""
    part = np.empty(1)
    assert _difference(np.float32([1e8]), np.float32([1]), part) == pytest.approx(99999999.0**2, rel=1e-15)
    assert part == [99999999.0]


RECEIVED = {"w": np.zeros(4, np.float32), "running_mean": np.zeros(2, np.float32)}
LAYOUT = Layout(RECEIVED)


def trained(length, examples, mean=0.0, plan=PLAN):
    model = {"w": np.float32([length, 0, 0, 0]), "running_mean": np.float32([mean, 0])}
    return plan.trained(LAYOUT, model, RECEIVED, examples, {}, {}, np.random.default_rng(0))


def test_statistics_that_no_sum_has_room_for_cost_their_client():
    trained(1, 5, mean=1e17)
    with pytest.raises(ValueError, match=r"secagg: the change of a shared statistic is not finite"):
        trained(1, 5, mean=5e29)


@pytest.mark.parametrize("alike", [False, True])
def test_a_mean_is_never_longer_than_the_clip(alike):
    """Two honest clients, clipped, and a third one that sends what it likes: its weight, its update."""
    plan = replace(PLAN, alike=alike)
    honest = trained(3, 10, plan=plan) + trained(3, 4, plan=plan)

    def possible(vector):
        total = honest + vector
        return plan.is_possible(plan.read(total, 3, LAYOUT), total, 3, LAYOUT)

    assert possible(trained(3, 10, plan=plan))
    beyond = trained(0, 10, plan=plan)
    beyond[1:4] += np.uint32(2**30)  # sqrt(3) / 2 of the sum's bound, across what the others send
    assert not possible(beyond)
    if not alike:
        heavy = replace(plan, cap=100)
        assert not possible(trained(0, 17, plan=heavy))  # of 10 at most
