"""FedAMS against Wang et al. 2022, written out entry by entry; what makes it another rule than FedAdam."""

import math

import numpy as np
import pytest
from flwr.app import ConfigRecord
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import FedAdam, FedAMS
from strategies.aggregation.rule_state import RuleState

from ..helpers import CannedGrid, ndarrays, one_round, record, train_reply
from .test_rules import stepped_later

B1, B2, ETA = 0.9, 0.99, 0.05


def written(x, rounds, epsilon):
    """The model after each round, from each round's mean differences."""
    m, v, greatest = [0.0] * len(x), [0.0] * len(x), [epsilon] * len(x)
    for differences in rounds:
        for j, d in enumerate(differences):
            m[j] = B1 * m[j] + (1 - B1) * d
            v[j] = B2 * v[j] + (1 - B2) * d * d
            greatest[j] = max(greatest[j], v[j], epsilon)
            x[j] += ETA * m[j] / math.sqrt(greatest[j])
        yield list(x)


@pytest.mark.parametrize("epsilon", [1e-8, 1e-4, 0.5])
def test_three_rounds_of_which_clients_are_missing(epsilon):
    """Of four clients, of 3, 1, 4 and 1 examples, the second answers nothing in round 2, two in round 3."""
    rng = np.random.default_rng(5)
    sizes, deltas = [3, 1, 4, 1], rng.normal(scale=0.2, size=(3, 4, 6))
    answered = [[0, 1, 2, 3], [0, 2, 3], [1, 2]]
    means = [
        np.average(deltas[t][who], axis=0, weights=[sizes[i] for i in who]) for t, who in enumerate(answered)
    ]
    strategy = FedAMS(eta=ETA, beta_1=B1, beta_2=B2, epsilon=epsilon)
    model = {"w": rng.normal(size=(2, 3)).astype(np.float32)}
    expected = list(written(model["w"].ravel().astype(float).tolist(), means, epsilon))
    for t, who in enumerate(answered, start=1):

        def client(message, i, sent=model, t=t, who=who):
            answer = {"w": (sent["w"] + deltas[t - 1][i].reshape(2, 3)).astype(np.float32)}
            return train_reply(message, answer, sizes[i]) if i in who else None

        grid = CannedGrid(4, client)
        messages = strategy.configure_train(t, record(model), ConfigRecord(), grid)
        model = ndarrays(strategy.aggregate_train(t, grid.send_and_receive(messages))[0])
        np.testing.assert_allclose(model["w"].ravel(), expected[t - 1], atol=1e-5)


def stepped(strategy, deltas):
    """The single parameter's steps."""
    x, steps = np.zeros(1, np.float32), []
    for t, d in enumerate(deltas, start=1):
        after = one_round(strategy, {"w": x}, [{"w": x + np.float32(d)}] * 2, [1, 1], t)["w"]
        steps.append(float((after - x)[0]))
        x = after
    return steps


def test_the_first_step_by_hand():
    """m = D/10 and v = D^2/100: a step of eta, whatever D is; below eps, m / sqrt(eps) is shorter."""
    assert stepped(FedAMS(eta=0.1), [0.5]) == pytest.approx([0.1])
    assert stepped(FedAMS(eta=0.1, epsilon=0.04), [0.5]) == pytest.approx([0.1 * 0.05 / 0.2])
    beside = 0.1 * 0.05 / (0.05 + 0.2)
    assert stepped(FedAMS(eta=0.1, epsilon=0.04), [0.5]) != pytest.approx([beside])


def test_what_was_once_great_is_divided_by_for_ever():
    """D = 1 once, then 0.01: after 30 rounds moments of half-lives of one round have forgotten it.

    FedAdam's step is eta then; here it is eta m / sqrt(1/2), for v was 1/2 in round 1.
    """
    deltas, decays = [1.0] + [0.01] * 30, {"beta_1": 0.5, "beta_2": 0.5}
    ams = stepped(FedAMS(eta=1.0, epsilon=1e-12, **decays), deltas)[-1]
    adam = stepped(FedAdam(eta=1.0, tau=1e-9, **decays), deltas)[-1]
    assert ams == pytest.approx(0.01 / 0.5**0.5, rel=1e-3)
    assert adam == pytest.approx(1, rel=1e-3)


@settings(max_examples=25)
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=6), st.floats(1e-6, 1))
def test_no_step_is_longer_than_eta_m_over_the_root_of_eps(deltas, epsilon):
    state, m = RuleState(), 0.0
    for d in deltas:
        m = 0.9 * m + 0.1 * d
        step = FedAMS(eta=1.0, epsilon=epsilon).server_step(np.array([d]), state, None)
        assert abs(step[0]) <= abs(m) / math.sqrt(epsilon) * (1 + 1e-9)


def test_parameters_that_are_stepped_later_begin_at_eps():
    deltas, late = np.full((5, 2), 0.5), np.array([False, True])
    way = stepped_later(FedAMS(eta=0.1), deltas, late, 5)
    assert way[1] == pytest.approx(0.1), "a first step, whichever round it is"


@pytest.mark.parametrize("arguments", [{"epsilon": 0}, {"beta_2": 1.0}, {"eta": -1}])
def test_arguments_out_of_range_are_refused_by_name(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        FedAMS(**arguments)
