"""Krum, Bulyan, the geometric median, centered clipping against their papers' formulas, written out here."""

import logging
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import FedAvg, FedYogi
from strategies.aggregation.means import Summand
from strategies.aggregation.named_means import named_mean, new_mean
from strategies.aggregation.rule_state import RuleState
from strategies.aggregation.whole_answers import CENTRE, middle_mean, squared_distances, sure

from ..helpers import CannedGrid, one_round, train, train_reply

KINDS = ["krum:2", "multi-krum:2,3", "bulyan:2", "geometric-median", "centered-clip:1.5"]


def mean_of(kind, values, weights=None, state=None, dtype=np.float64):
    """Our mean of rows, in two entries and from a reference of 1."""
    values = np.asarray(values)
    size = values.shape[1]
    mean = new_mean(kind, 0.1, [np.ones(1), np.ones(size - 1)], np.dtype(dtype))
    for row, weight in zip(values + 1, weights or [1.0] * len(values), strict=True):
        mean.add(Summand([row[:1], row[1:]], weight))
    return mean.mean_of(RuleState() if state is None else state)


def scores(values, f):
    """Krum's scores, by their definition, each with those by one neighbour more, and so on, for ties."""
    n = len(values)
    found = []
    for i in range(n):
        others = sorted(((values[i] - values[j]) ** 2).sum() for j in range(n) if j != i)
        found.append([sum(others[:count]) for count in range(max(1, n - f - 2), n)])
    return found


def krum(values, f, m=1):
    return values[sorted(range(len(values)), key=lambda i: scores(values, f)[i])[:m]].mean(axis=0)


def bulyan(values, f):
    left, taken = list(range(len(values))), []
    while len(taken) < len(values) - 2 * f:
        own = scores(values[left], f)
        taken.append(left.pop(own.index(min(own))))
    found = []
    for column in values[taken].T:
        near = sorted(column, key=lambda value: abs(value - np.median(column)))
        found.append(np.mean(near[: len(taken) - 2 * f]))
    return np.array(found)


def weiszfeld(values, weights):
    lengths = np.linalg.norm(values, axis=1)
    start = values * np.minimum(1, np.median(lengths) / lengths)[:, None]
    v = np.average(start, axis=0, weights=weights)
    for _ in range(10):
        b = np.array([w / max(1e-6, np.linalg.norm(v - x)) for w, x in zip(weights, values, strict=True)])
        v = (b[:, None] * values).sum(0) / b.sum()
    return v


def clipped(values, v, tau):
    for _ in range(3):
        v = v + np.mean([(x - v) * min(1, tau / max(np.linalg.norm(x - v), 1e-300)) for x in values], axis=0)
    return v


FORMULAS = {
    "krum:2": lambda values, weights: krum(values, 2),
    "multi-krum:2,3": lambda values, weights: krum(values, 2, 3),
    "bulyan:2": lambda values, weights: bulyan(values, 2),
    "geometric-median": weiszfeld,
    "centered-clip:1.5": lambda values, weights: clipped(values, 0, 1.5),
}


# ---- by hand ----------------------------------------------------------------------------------------


def test_the_geometric_median_by_hand():
    """Of three corners of a square and its middle, which is where their distances are least, by symmetry."""
    cross = np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [0, 0]], float)
    np.testing.assert_allclose(mean_of("geometric-median", cross), [0, 0], atol=1e-9)
    three = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]])  # two of three in one place: it is there
    np.testing.assert_allclose(mean_of("geometric-median", three), [0, 0], atol=1e-5)
    spread = np.array([[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]])
    weighty = mean_of("geometric-median", spread, weights=[1, 1, 9])  # most of the weight in one place
    np.testing.assert_allclose(weighty, [1, 1], atol=1e-3)


@pytest.mark.parametrize("constant", [0.0, -np.inf])
def test_centered_clip_by_hand(constant):
    """tau 1 of 4, 0 and -1, which are one vector each: from v = 0, the clipped are 1, 0, -1: v = 0.

    With 4, 4, -1: 1/3 after a step, 2/3 after two, 1 after three; the next update goes on from there. An
    entry that is infinite everywhere, as in an attention mask, has no share in any distance.
    """
    column = lambda *values: np.array([[value, constant] for value in values])  # noqa: E731
    state = RuleState()
    for values, mean in [((4, 0, -1), 0), ((4, 4, -1), 1), ((4, 4, -1), 2)]:
        found = mean_of("centered-clip:1", column(*values), state=state)
        np.testing.assert_allclose(found, [mean, constant], atol=1e-12)
        np.testing.assert_allclose(state.vectors[CENTRE], [mean, 0], atol=1e-12)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kept", [1, 2, 7, 20, 33])
@pytest.mark.parametrize("unlike", [1, np.inf, np.nan])
def test_the_middle_values_are_the_first_of_the_nearest_runs(kept, unlike):
    """Ties, of whole numbers, and what is not finite go to the first run, as np.argmin has it."""
    values = np.random.default_rng(kept).integers(-4, 4, (500, 33)).astype(np.float32)
    values[7, :20] = unlike
    values.sort(axis=1)
    first, last = max(0, 17 - kept), min(16, 33 - kept)
    for row, mean in zip(values, middle_mean(values, kept), strict=True):
        runs = [row[i : i + kept] for i in range(first, last + 1)]
        with np.errstate(invalid="ignore"):
            far = [np.maximum(row[16] - run[0], run[-1] - row[16]) for run in runs]
        np.testing.assert_array_equal(mean, runs[np.argmin(far)].mean())


@pytest.mark.parametrize("apart", [1.0, 1e-1, 1e-2, 1e-3, 1e-4])
def test_krum_chooses_as_in_float64_where_answers_are_near_each_other(apart):
    """Differences of 1 that differ by little: float32 products say nothing of their distances."""
    rng = np.random.default_rng(0)
    values = (1 + apart * rng.normal(size=(12, 3000))).astype(np.float32)
    whole = [np.zeros(1, np.float32), np.zeros(2999, np.float32)]
    for m in (1, 4):
        mean = new_mean(f"multi-krum:2,{m}", 0.1, whole, np.dtype(np.float32))
        for row in values:
            mean.add(Summand([row[:1], row[1:]], 1.0))
        order = sorted(range(12), key=lambda i: scores(values.astype(float), 2)[i])
        assert mean.chosen() == sorted(order[:m])


def test_float32_decides_where_it_can_and_never_where_it_cannot():
    far = np.array([[0, 1, 9, 16], [1, 0, 4, 9], [9, 4, 0, 1], [16, 9, 1, 0.0]])
    assert sure(far, 1, 1, np.full((4, 4), 1e-4)) == ([], [0, 1, 2, 3])  # all have a neighbour at 1
    far[0, 1] = far[1, 0] = 0.9
    far[1, 2] = far[2, 1] = 3.0
    assert sure(far, 0, 1, np.full((4, 4), 4e-5)) == ([1], [])  # 0.9 + 3 against 1 + 3
    assert sure(far, 0, 1, np.full((4, 4), 0.1)) == ([], [1, 2])
    assert sure(far, 0, 3, np.full((4, 4), 0.01)) == ([0, 1, 2], [])  # 9.9 against 10
    doubtful = np.full((4, 4), 4e-5)
    doubtful[3] = doubtful[:, 3] = 9
    assert sure(far, 0, 1, doubtful) == ([], [1, 2, 3])  # the last may be nearer than all
    assert sure(far, 0, 4, np.full((4, 4), 9)) == ([0, 1, 2, 3], [])
    assert sure(np.full((4, 4), np.nan), 0, 1, np.full((4, 4), np.nan)) == ([], [0, 1, 2, 3])


def test_a_lie_beyond_float32_is_seen():
    values = np.vstack([np.random.default_rng(0).normal(size=(8, 30)), np.full((1, 30), 1e60)])
    assert np.abs(mean_of("krum:1", values)).max() < 10


def test_roundings_that_add_up_decide_nothing():
    """Of entries of one size, float32 sums of squares are off by more than what tells these lengths apart."""
    signs = np.sign(np.random.default_rng(0).normal(size=(7, 40_000)))
    values = (signs * 0.0123 * (1 + 1e-6 * np.arange(7))[:, None]).astype(np.float32)
    mean = new_mean("bulyan:1", 0.1, [np.zeros(40_000, np.float32)], np.dtype(np.float32))
    for row in values:
        mean.add(Summand([row], 1.0))
    (quick, errors), true = mean.quick_products(), mean.products()
    off = np.abs(np.diag(quick) - np.diag(true))
    assert (off > 1e-6 * np.diag(true)).any()
    assert (off < np.diag(errors)).all()
    mean.refine(quick, errors, [2, 5])
    wrong = np.abs(squared_distances(quick) - squared_distances(true))
    assert (wrong <= errors).all()
    assert errors[2].max() < 1e-10 < errors[0, 1]
    assert mean.choose() == mean.select_exactly(squared_distances(true))


# ---- by the papers' formulas ------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(kind=st.sampled_from(KINDS), n=st.integers(11, 15), seed=st.integers(0, 999))
def test_every_mean_by_its_formula(kind, n, seed):
    rng = np.random.default_rng(seed)
    values, weights = rng.normal(size=(n, 5)), [float(w) for w in rng.integers(1, 9, n)]
    np.testing.assert_allclose(mean_of(kind, values, weights), FORMULAS[kind](values, weights), atol=1e-8)


@settings(max_examples=25, deadline=None)
@given(kind=st.sampled_from(KINDS), scale=st.floats(10, 1e15), seed=st.integers(0, 99))
def test_one_lie_of_any_size_moves_it_little(kind, scale, seed):
    """No further than the honest ones are from their middle; the weighted mean goes wherever it is told."""
    rng = np.random.default_rng(seed)
    honest = rng.normal(size=(11, 6))
    lie = np.full((1, 6), scale)
    got = mean_of(kind, np.concatenate([lie, honest]))
    farthest = np.linalg.norm(honest - honest.mean(0), axis=1).max()
    assert np.linalg.norm(got - honest.mean(0)) <= farthest + 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_put_together(kind, monkeypatch):
    values = np.random.default_rng(0).normal(size=(11, 17))
    whole = mean_of(kind, values)
    monkeypatch.setattr("strategies.aggregation.vectors.BLOCK", 5 * 16)
    np.testing.assert_allclose(mean_of(kind, values), whole, atol=1e-9)


# ---- in a rule --------------------------------------------------------------------------------------


def answers(i, x):
    """What client i makes of x; client 0 lies."""
    rng = np.random.default_rng(i)
    w = np.full(4, np.float32(1e15)) if i == 0 else x["w"] + rng.normal(size=4).astype(np.float32)
    return {"w": w, "bn.running_mean": np.full(2, 1e9 if i == 0 else i, np.float32), "mask": x["mask"]}


START = {
    "w": np.zeros(4, np.float32),
    "bn.running_mean": np.zeros(2, np.float32),
    "mask": np.array([0, -np.inf], np.float32),
}


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_and_constants_of_a_round(kind):
    """A mask stays as it was sent; statistics are of honest clients too, though client 0 claims much."""
    models = [answers(i, START) for i in range(12)]
    got = one_round(FedAvg(mean=kind), START, models, [1] * 12)
    assert np.isfinite(got["w"]).all()
    assert (np.abs(got["w"]) < 5).all()
    assert ((got["bn.running_mean"] >= 1) & (got["bn.running_mean"] <= 11)).all()
    assert got["mask"].tolist() == [0, -np.inf]


def test_krum_takes_the_statistics_of_the_answer_that_it_takes():
    models = [{"w": np.array([v], np.float32), "bn.running_mean": np.array([i], np.float32)}
              for i, v in enumerate((9, 1, 1.5, 2.25, 30))]  # fmt: skip
    start = {name: np.zeros(1, np.float32) for name in models[0]}
    got = one_round(FedAvg(mean="krum:1"), start, models, [1] * 5)  # scores: big, 1.8, 0.8, 2.1, big
    assert (got["w"], got["bn.running_mean"]) == (1.5, 2)


@pytest.mark.parametrize(("kind", "least"), [("krum:1", 5), ("multi-krum:1,6", 7), ("bulyan:1", 7)])
def test_a_lost_answer_may_leave_too_few(kind, least, caplog):
    """Then the model and the rule stay, and a line says so; with another round's answers it goes on."""
    rule, lost = FedYogi(mean=kind), {0}
    client = lambda m, i: None if i in lost else train_reply(m, answers(i + 1, START))  # noqa: E731
    grid = CannedGrid(least, client)
    with caplog.at_level(logging.WARNING):
        assert train(rule, START, grid) == (None, None)
    assert f"{least - 1} of {least} answers are usable, mean '{kind}' needs {least}" in caplog.text
    assert (rule.rule_state.updates, rule.rule_state.vectors) == (0, {})
    lost.clear()
    assert train(rule, START, grid, 2)[0]
    assert rule.rule_state.updates == 1


def test_the_centre_goes_on_from_a_saved_state():
    """Two rounds of one rule are a round each of two, the second with the state of the first."""
    models = [answers(i, START) for i in range(1, 6)]
    make = partial(FedAvg, mean="centered-clip:0.5")
    first, second = make(), make()
    one_round(first, START, models, [1] * 5)
    second.rule_state.vectors = {name: vector.copy() for name, vector in first.rule_state.vectors.items()}
    assert list(second.rule_state.vectors) == [CENTRE]
    on = one_round(first, START, models, [1] * 5, 2)
    assert one_round(second, START, models, [1] * 5, 2)["w"].tobytes() == on["w"].tobytes()
    assert one_round(make(), START, models, [1] * 5, 2)["w"].tobytes() != on["w"].tobytes()


NO_MEANS = ["krum", "krum:", "krum:-1", "krum:1.5", "krum:1,2", "krum:x", "multi-krum:1", "multi-krum:1,0",
 "bulyan", "bulyan:", "geometric-median:1", "centered-clip", "centered-clip:0", "centered-clip:inf",
 "centered-clip:nan", "centered-clip:x", "median:1", "Krum:1", ""]  # fmt: skip


def test_what_names_no_mean():
    for text in NO_MEANS:
        with pytest.raises(ValueError, match="mean='.*' is not allowed; expected one of 'weighted'"):
            FedAvg(mean=text)
        with pytest.raises(ValueError, match="expected one of|could not convert"):
            named_mean(text)
