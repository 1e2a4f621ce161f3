"""Robust means and clipping against formulas written out here in float64, and what they withstand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import FedAvg, FedDyn, FedNova, Scaffold
from strategies.aggregation.means import Summand, TrimmedMean

from ..helpers import OF_MODELS, CannedGrid, ndarrays, one_round, record, train, train_reply

CLIENTS = 9


def sorted_mean(values, cut):
    return np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0)


MEANS = {
    "median": lambda values: np.median(values, axis=0),
    "trimmed": lambda values: sorted_mean(values, 2),  # trim 0.25 of 9: floor(2.25) at each end
}
RULES = "fedavg fedavgm scaffold scaffold-momentum fedadagrad fedyogi fedadam fednova feddyn"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", MEANS)
@pytest.mark.parametrize("rule", RULES.split())
def test_a_rule_steps_by_a_robust_mean_as_if_all_had_answered_it(rule, kind):
    """Of parameters, statistics, counters and control variates; FedNova's is one of updates a step."""
    rng, mean = np.random.default_rng(3), MEANS[kind]
    start = {"w": rng.normal(size=7).astype(np.float32), "bn.running_mean": np.zeros(2, np.float32)}
    start["bn.num_batches_tracked"] = np.array(0)
    steps = rng.integers(1, 20, CLIENTS) if rule == "fednova" else np.full(CLIENTS, 5)
    answers = {name: a + rng.normal(size=(CLIENTS, *a.shape)) for name, a in start.items()}
    answers["bn.num_batches_tracked"] = rng.integers(0, 100, CLIENTS)
    answers["control"] = rng.normal(size=(CLIENTS, 7))
    alike = {name: mean(values) for name, values in answers.items()}
    alike["w"] = start["w"] + mean(steps) * mean((answers["w"] - start["w"]) / steps[:, None])
    alike["bn.num_batches_tracked"] = np.rint(alike["bn.num_batches_tracked"])

    def stepped(given, steps, **arguments):
        def client(message, i):
            arrays = {name: given(name, i).astype(array.dtype) for name, array in start.items()}
            reply = train_reply(message, arrays, i + 1, **{"local-steps": int(steps[i])})
            if "control" in reply.content:
                reply.content["control"] = record({"w": given("control", i).astype(np.float32)})
            return reply

        strategy = OF_MODELS[rule](**arguments)
        got = ndarrays(train(strategy, start, CannedGrid(CLIENTS, client))[0])
        return got | strategy.rule_state.vectors

    expected = stepped(lambda name, i: alike[name], [5] * CLIENTS)
    for name, entry in stepped(lambda name, i: answers[name][i], steps, mean=kind, trim=0.25).items():
        np.testing.assert_allclose(entry, expected[name], atol=3e-6, err_msg=name)
        assert entry.dtype == expected[name].dtype


@settings(max_examples=60)
@given(n=st.integers(1, 25), trim=st.floats(0, 0.5), seed=st.integers(0, 99))
def test_the_trimmed_mean_by_its_definition(n, trim, seed):
    """Weights do not matter; positive ``trim`` cuts one at least where that leaves a value."""
    values = np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32)
    mean = TrimmedMean([np.ones(1), np.ones(2)], np.dtype(np.float32), trim)
    for i, row in enumerate(values):
        mean.add(Summand([row[:1], row[1:]], weight=i + 1, factor=2.0))
    cut = int(trim * n + 1e-9)
    if trim and not cut:
        cut = 1
    while n - 2 * cut < 1:
        cut -= 1
    expected = sorted_mean(2 * (values.astype(np.float64) - 1), cut)
    np.testing.assert_allclose(mean.mean(), expected, rtol=1e-4, atol=1e-5)


def test_an_update_longer_than_the_bound_is_scaled_down_over_all_parameters_together():
    """By hand: (3, 4) of norm 5, over two entries, is scaled to (0.6, 0.8); (0.3, 0.4) is short and stays.

    The statistic is not scaled: the mean of 10 and 20.
    """
    names = ("a", "b", "bn.running_mean")
    start = {name: np.zeros(1, np.float32) for name in names}
    models = [
        {name: np.full(1, value, np.float32) for name, value in zip(names, values, strict=True)}
        for values in ((3, 4, 10), (0.3, 0.4, 20))
    ]
    got = one_round(FedAvg(clip_update_norm=1.0), start, models, [1, 1])
    assert got["a"] == pytest.approx(0.45)
    assert got["b"] == pytest.approx(0.6)
    assert got["bn.running_mean"] == 15


def test_fednova_clips_the_update_before_it_divides_by_the_steps():
    """By hand: updates 5 and 4 clipped to 2, K = (10, 2), n = (3, 1): 0.75 2/10 + 0.25 2/2 = 0.4; tau 8."""
    models, steps = [{"w": np.full(1, v, np.float32)} for v in (5, 4)], [{"local-steps": k} for k in (10, 2)]
    start = {"w": np.zeros(1, np.float32)}
    got = one_round(FedNova(clip_update_norm=2.0), start, models, [3, 1], metrics=steps)
    assert got["w"] == pytest.approx(3.2)


@settings(max_examples=40)
@given(scale=st.floats(1e-3, 1e15), bound=st.floats(1e-3, 1e3), mean=st.sampled_from(["weighted", "median"]))
def test_no_client_moves_the_model_by_more_than_the_bound(scale, bound, mean):
    d = np.random.default_rng(0).normal(size=50)
    d *= scale / np.linalg.norm(d)
    start = {"w": np.zeros((5, 10), np.float32)}
    strategy = FedAvg(clip_update_norm=bound, mean=mean, min_train_nodes=1, min_available_nodes=1)
    got = one_round(strategy, start, [{"w": d.reshape(5, 10).astype(np.float32)}], [1])["w"]
    np.testing.assert_allclose(np.linalg.norm(got), min(scale, bound), rtol=1e-5)


def test_feddyn_and_scaffold_take_the_clipped_update_and_the_whole_control_variate():
    """FedDyn, alpha 0.5, M 2, updates 4 and 1 clipped to 2: h = -0.25 (2 + 1) = -0.75; x = 1.5 + 1.5 = 3."""
    start = {"w": np.zeros(1, np.float32)}
    models = [{"w": np.full(1, v, np.float32)} for v in (4, 1)]
    strategy = FedDyn(alpha=0.5, clip_update_norm=2.0)
    assert one_round(strategy, start, models, [1, 1])["w"] == pytest.approx(3.0)
    assert strategy.rule_state.vectors["h"] == pytest.approx(-0.75)

    strategy, control = (
        Scaffold(clip_update_norm=2.0),
        {"control": record({"w": np.full(1, 4.0, np.float32)})},
    )
    assert one_round(strategy, start, models, [1, 1], records=[control] * 2)["w"] == pytest.approx(1.5)
    assert strategy.rule_state.vectors["c"] == pytest.approx(4.0)


# ---- a bound where tensors have several names ---------------------------------------------------------


FOUR = {name: np.zeros(1, np.float32) for name in ("a", "a.again", "b", "frozen")}


def clipped(update, **arguments):
    """One client's update, by name, after a bound of 1."""
    strategy = FedAvg(clip_update_norm=1.0, min_train_nodes=1, min_available_nodes=1, **arguments)
    names = dict(zip(FOUR, update, strict=True))
    got = one_round(strategy, FOUR, [{n: np.full(1, v, np.float32) for n, v in names.items()}], [1])
    return [float(got[name][0]) for name in FOUR]


def test_a_tied_tensor_counts_once_and_both_names_are_scaled():
    """(3, 4) is of norm 5; were 3 counted twice, of the root of 34."""
    tied = {"trainable": ["b", "a", "a.again"], "tied": [("a.again", "a")]}
    assert clipped((3, 3, 4, 1), **tied) == pytest.approx([0.6, 0.6, 0.8, 1])
    assert clipped((3, 3, 4, 1), trainable=tied["trainable"])[2] == pytest.approx(4 / 34**0.5)


@pytest.mark.parametrize("lie", [(0, 3, 4, 0), (3, 0, 4, 0)])
def test_a_tensor_answered_differently_under_its_names_is_as_long_as_the_longest(lie):
    assert clipped(lie, tied=[("a", "a.again")]) == pytest.approx([value / 5 for value in lie])


def test_a_name_that_is_not_stepped_counts_nothing():
    assert clipped((3, 3, 4, 100), trainable=["a", "b"], tied=[("a", "frozen")])[2] == pytest.approx(0.8)
