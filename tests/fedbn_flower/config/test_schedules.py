"""Schedules of learning rates, and optimisers by name: numbers by hand, laws, and mistakes in one line."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbn_flower.config.making import run_config
from fedbn_flower.config.schedules import Schedule
from fedbn_flower.core.errors import UserError


def factors(text, rounds):
    schedule = Schedule.parse(text)
    return [schedule.factor(t, rounds) for t in range(1, rounds + 1)]


HALF = 0.5**0.5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("constant", [1, 1, 1, 1]),
        ("cosine", [1, (1 + HALF) / 2, 0.5, (1 - HALF) / 2]),
        ("cosine:0.2", [1, 0.2 + 0.4 * (1 + HALF), 0.6, 0.2 + 0.4 * (1 - HALF)]),
        ("cosine:1", [1, 1, 1, 1]),
        ("linear", [1, 0.75, 0.5, 0.25]),
        ("linear:0.2", [1, 0.8, 0.6, 0.4]),
        ("step:2:0.1", [1, 1, 0.1, 0.1]),
        ("step:3:2", [1, 1, 1, 2]),
        ("exponential:0.5", [1, 0.5, 0.25, 0.125]),
        ("warmup:3+constant", [0.25, 0.5, 0.75, 1]),
        ("warmup:1+linear", [0.5, 1, 2 / 3, 1 / 3]),
        ("warmup:2+cosine", [1 / 3, 2 / 3, 1, 0.5]),
        ("warmup:2+exponential:0.1", [1 / 3, 2 / 3, 1, 0.1]),
    ],
)
def test_factors_by_hand(text, expected):
    assert factors(text, 4) == pytest.approx(expected, rel=1e-12)


LOWS = st.floats(0, 1).map(lambda low: f"{low:.3f}")
FALLING = st.one_of(
    st.just("constant"),
    st.tuples(st.sampled_from(["cosine", "linear"]), LOWS).map(":".join),
    st.tuples(st.integers(1, 9), st.floats(0.5, 1)).map(lambda a: f"step:{a[0]}:{a[1]}"),
    st.floats(0.5, 1).map(lambda factor: f"exponential:{factor}"),
)


@given(text=FALLING, rounds=st.integers(1, 60))
def test_one_that_falls_begins_at_1_never_rises_and_never_comes_to_0(text, rounds):
    found = factors(text, rounds)
    assert found[0] == 1
    assert all(before >= after > 0 for before, after in pairwise(found))
    if text.startswith(("cosine", "linear")):
        assert min(found) >= float(text.split(":")[1]) - 1e-12


@given(text=FALLING, warmup=st.integers(1, 20), rounds=st.integers(1, 40))
def test_after_a_warm_up_that_rises_evenly_it_is_as_without_in_fewer_rounds(text, warmup, rounds):
    found = factors(f"warmup:{warmup}+{text}", warmup + rounds)
    rises = [after - before for before, after in pairwise([0, *found[: warmup + 1]])]
    assert rises == pytest.approx([1 / (warmup + 1)] * (warmup + 1))
    assert found[warmup:] == factors(text, rounds)


EXPECTED = (
    "expected constant, cosine[:MIN], linear[:MIN], step:EVERY:FACTOR, exponential:FACTOR, or warmup:N+"
)


FORMS = (
    "cosin", "", "cosine:", "cosine:x", "cosine:2", "cosine:-0.1", "cosine:nan", "cosine:0:1",
    "linear:1.5", "constant:1", "step", "step:2", "step:0:0.5", "step:1.5:0.5", "step:2:0",
    "step:2:0.5:1", "exponential", "exponential:0", "exponential:-1", "exponential:inf", "warmup:3",
    "warmup+cosine", "warmup:0+cosine", "warmup:x+cosine", "warmup:1.5+cosine",
    "warmup:2+warmup:2+cosine", "cosine+warmup:2", "warmup:2+",
)  # fmt: skip


@pytest.mark.parametrize("key", ["client-lr-schedule", "server-lr-schedule"])
def test_another_form_is_one_line(key):
    for text in FORMS:
        with pytest.raises(UserError) as caught:
            run_config({key: text})
        value = f"{text!r} is not allowed" if text else "missing"
        assert str(caught.value).startswith(f"{key}: {value}; {EXPECTED}"), text
        assert "\n" not in str(caught.value)


def test_lbfgs_and_sparseadam_are_not_proposed():
    with pytest.raises(UserError) as caught:
        run_config({"client-optimizer": "sdg"})
    assert "(did you mean 'sgd'?); expected one of adadelta, adafactor, adagrad, adam" in str(caught.value)
    assert "lbfgs" not in str(caught.value)
    assert "sparseadam" not in str(caught.value)


def test_the_rates_are_products():
    config = run_config({"server-lr-schedule": "linear", "server-lr": 0.4, "rounds": 4})
    assert config.scheduled_rates(2) == {"server-lr": pytest.approx(0.3)}
    config = run_config({"client-lr-schedule": "exponential:0.5", "client-lr": 0.2})
    assert config.scheduled_rates(3) == {"client-lr": 0.2 * 0.5**2}
    assert run_config({}).scheduled_rates(1) == {}


@pytest.mark.parametrize("reference", ["alone", "pooled"])
def test_a_reference_has_the_clients_schedule_and_no_servers(reference):
    keys = {"client-lr-schedule": "cosine", "server-lr-schedule": "cosine", "client-optimizer": "adamw"}
    config = run_config({"reference": reference, **keys})
    assert (config.client_lr_schedule, config.server_lr_schedule) == ("cosine", "constant")
    assert config.client_optimizer == "adamw"
