"""Intervals against printed tables, SciPy, formulas written again, and simulation."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import logit
from sklearn.metrics import average_precision_score

from benchmarks.intervals import coverage, rows_of_sites
from clients.problems.metrics import METRICS as OF_RUNS
from clients.problems.metrics import Predicted
from clients.problems.metrics.scores import AveragePrecision
from fedbn_flower.study.statistics.case_metrics import METRICS, ByFunction, Mean, OfCurve, OfStates
from fedbn_flower.study.statistics.cases import Cases
from fedbn_flower.study.statistics.delong import aurocs
from fedbn_flower.study.statistics.intervals import (
    GROUPED,
    calibration_test,
    delong,
    drawn_weights,
    exact,
    intervals,
    share,
)


@pytest.mark.parametrize(
    ("hits", "cases", "low", "high"),
    [(81, 263, 0.2527, 0.3676), (15, 148, 0.0578, 0.1617), (0, 20, 0.0, 0.1684), (1, 29, 0.0009, 0.1776)],
)
def test_exact_ones_are_those_of_newcombes_table(hits, cases, low, high):
    """R. Newcombe, Two-sided confidence intervals for the single proportion, Statistics in Medicine 17, 1998,
    table I, method 5."""
    found = exact(hits, cases)
    assert (found.value, found.method) == (hits / cases, "Clopper-Pearson")
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(("hits", "cases", "level"), [(0, 7, 0.9), (7, 7, 0.99), (31, 500, 0.5)])
def test_exact_ones_are_scipys_at_other_levels_too(hits, cases, level):
    expected = stats.binomtest(hits, cases).proportion_ci(level, method="exact")
    found = exact(hits, cases, level)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-12)


def test_no_share_has_none():
    for hits, cases in ((0, 0), (3, 2), (-1, 2)):
        with pytest.raises(ValueError, match="are not a share"):
            exact(hits, cases)


def test_an_auroc_by_hand():
    """Positive 3 and 5, negative 1 and 4: three of four pairs are in order. Placements of the positive ones
    are 1/2 and 1, of the negative ones 1 and 1/2, whose sample variances are 1/8: 1/16 + 1/16 = 1/8."""
    found = aurocs([1, 0, 1, 0], [3, 1, 5, 4])
    assert found.areas == pytest.approx([0.75])
    assert found.covariance == pytest.approx(np.array([[0.125]]))
    assert found.error() == pytest.approx((np.sqrt(0.125), 2))  # (1/8)^2 / (2 (1/16)^2)
    found = delong([1, 0, 1, 0], [3, 1, 5, 4])
    half = (
        6 * 0.75 / 2 + 1 / 16 / (0.75 * 0.25)
    ) / 7  # six groups' worth of the greatest variance, one's own
    t = 2.144787  # of 14 degrees of freedom: 7 of each half
    for end in (found.low, found.high):
        assert abs(0.75 - end) == pytest.approx(t * np.sqrt(end * (1 - end) * 2 * half), rel=1e-6)


def by_all_pairs(positive, scores):
    """DeLong's covariance from his kernel, pair by pair, without ranks."""
    truth = np.asarray(positive, bool)
    m, n = truth.sum(), (~truth).sum()
    kernels = [
        (row[truth][:, None] > row[~truth]) + 0.5 * (row[truth][:, None] == row[~truth]) for row in scores
    ]
    v10, v01 = (np.array([kernel.mean(axis=axis) for kernel in kernels]) for axis in (1, 0))
    return [k.mean() for k in kernels], np.cov(v10) / m + np.cov(v01) / n


@pytest.mark.parametrize("distinct", [5, 1000])
def test_delongs_covariance_written_again(distinct):
    rng = np.random.default_rng(distinct)
    positive = rng.random(80) < 0.3
    scores = rng.integers(0, distinct, (3, 80)) + positive * distinct / 4
    found = aurocs(positive, scores)
    expected = by_all_pairs(positive, scores)
    np.testing.assert_allclose(found.areas, expected[0])
    np.testing.assert_allclose(found.covariance, expected[1])
    alone = aurocs(positive, scores, rng.permutation(80))
    np.testing.assert_allclose(alone.covariance, found.covariance)  # each case is a group


def test_its_error_and_degrees_of_freedom_are_those_of_scipys_brunner_munzel_test():
    frame = table(1, 60)
    positive = frame.target == 1
    found = aurocs(positive, frame.score)
    error, freedom = found.error()
    expected = stats.brunnermunzel(frame.score[~positive], frame.score[positive])
    assert abs(found.areas[0] - 0.5) / error == pytest.approx(abs(expected.statistic))
    assert 2 * stats.t.sf(abs(found.areas[0] - 0.5) / error, freedom) == pytest.approx(expected.pvalue)


def test_groups_count_as_obuchowski_has_them():
    """Her formulas for one AUROC, sums written out: S10, S01 and S11 of 1997, equations 3 to 5."""
    rng = np.random.default_rng(3)
    groups = rng.integers(0, 25, 90)
    positive = rng.random(90) < 0.4
    scores = rng.normal(size=90) + positive + rng.normal(size=25)[groups]
    x, y = scores[positive], scores[~positive]
    m, n = len(x), len(y)
    v10, v01 = (x[:, None] > y).mean(axis=1), (x[:, None] > y).mean(axis=0)
    area = v10.mean()
    of_x, of_y = groups[positive], groups[~positive]
    i10, i01, i = len(set(of_x)), len(set(of_y)), len(set(groups))
    x_sums = [(v10[of_x == g] - area).sum() for g in range(25)]
    y_sums = [(v01[of_y == g] - area).sum() for g in range(25)]
    s10 = i10 / ((i10 - 1) * m) * sum(s**2 for s in x_sums)
    s01 = i01 / ((i01 - 1) * n) * sum(s**2 for s in y_sums)
    s11 = i / (i - 1) * sum(a * b for a, b in zip(x_sums, y_sums, strict=True))
    assert aurocs(positive, scores, groups).covariance[0, 0] == pytest.approx(
        s10 / m + s01 / n + 2 * s11 / (m * n)
    )


def test_an_auroc_of_one_has_three_quarters_of_the_greatest_variance():
    found = delong([0] * 30 + [1] * 8, range(38))
    parts = np.array([0.75 / 8, 0.75 / 30])
    freedom = parts.sum() ** 2 / (parts**2 / (13, 35)).sum()
    low = 1 / (1 + parts.sum() * stats.t.ppf(0.975, freedom) ** 2)
    assert (found.value, found.low, found.high) == pytest.approx((1, low, 1))
    grouped = delong([0] * 30 + [1] * 8, range(38), [*range(30), *[30] * 4, *[31] * 4])
    of_two = delong([0] * 30 + [1] * 2, range(32))
    assert grouped[:3] == pytest.approx(of_two[:3])  # four cases each, all alike, are one


def test_a_share_by_patient_with_the_score_equation_solved():
    """Of patients of one and of three pictures: as many cases as the linearised variance is that of."""
    hits, groups = np.array([1, 1, 0, 1, 0, 0, 1, 1]), np.array([0, 0, 0, 1, 2, 2, 2, 3])
    value, sizes, sums = 5 / 8, np.array([3, 1, 3, 1]), np.array([2, 1, 1, 1])
    variance = 4 / 3 * ((sums - value * sizes) ** 2).sum() / 64
    spread = (6 * 0.75 * 20 / 64 + 3 * variance / (value * (1 - value))) / 9
    found = share(hits, groups)
    for end in (found.low, found.high):
        expected = stats.t.ppf(0.975, 9) * np.sqrt(end * (1 - end) * spread)
        assert abs(value - end) == pytest.approx(expected, rel=1e-9)


def test_without_two_groups_of_each_there_is_no_variance():
    assert np.isnan(delong([1, 0, 0], [3, 1, 2])[1:3]).all()
    assert np.isnan(delong([0, 0], [3, 1])[:3]).all()


def table(sites, groups, seed=0, per_group=1):
    """Cases of sites, each with so many groups; the groups differ."""
    rng = np.random.default_rng(seed)
    site = np.repeat(np.arange(sites), groups * per_group)
    group = np.repeat(np.arange(sites * groups), per_group)
    target = rng.integers(0, 2, sites * groups)[group]
    score = target + rng.normal(size=sites * groups)[group] + rng.normal(size=len(group))
    columns = {"site": site, "id": range(len(group)), "group": group, "target": target}
    return pd.DataFrame({**columns, "score": 1 / (1 + np.exp(-score))})


def weights_of(frame, draws=20_000):
    return np.concatenate(list(drawn_weights(Cases.of(frame), 0, draws)))


def test_draws_are_of_whole_groups_within_their_sites():
    frame = table(3, 7, per_group=2)
    weights = weights_of(frame, 500)
    assert weights.shape == (500, 42)
    np.testing.assert_array_equal(weights[:, ::2], weights[:, 1::2])
    of_sites = weights.reshape(500, 3, 14).sum(axis=2)
    np.testing.assert_allclose(of_sites, 14)  # a site counts alike in every draw
    assert set(np.round(np.unique(weights) * 6 / 7, 9)) <= set(range(7))


def test_a_means_variance_is_the_unbiased_one():
    """Of G groups ``s^2 / G`` with the sample variance, which has G - 1; of G draws it would be smaller by
    (G - 1) / G, here a tenth."""
    frame = table(1, 10)
    found = (weights_of(frame) @ frame.score.to_numpy() / 10).var()
    expected = frame.score.var(ddof=1) / 10
    assert found / expected == pytest.approx(1, abs=0.04)
    by_scipy = stats.bootstrap((frame.score,), np.mean, n_resamples=20_000, rng=0).standard_error ** 2
    assert found / by_scipy == pytest.approx(10 / 9, abs=0.05)


@pytest.mark.parametrize(("sites", "groups"), [(1, 9), (3, 4), (3, 1)])
def test_draws_that_are_kept_are_those_drawn_anew_and_blocks_are_all_draws(monkeypatch, sites, groups):
    frame = table(sites, groups)
    kept = [weights_of(frame, 20) for _ in range(2)]
    monkeypatch.setattr("fedbn_flower.study.statistics.intervals.COUNTS_KEPT", 0)
    anew = weights_of(frame, 20)
    for weights in kept:
        np.testing.assert_array_equal(weights, anew)
    monkeypatch.setattr("fedbn_flower.study.statistics.intervals.WEIGHTS_AT_A_TIME", 7 * len(frame))
    assert [len(block) for block in drawn_weights(Cases.of(frame), 0, 20)] == [7, 7, 6]


def test_intervals_are_by_client_over_clients_and_pooled():
    frame = table(3, 40)
    found = intervals(frame, seed=3)
    assert list(found) == ["pooled", "mean", "clients"]
    assert list(found["clients"]) == ["0", "1", "2"]
    by_client = [found["clients"][site]["accuracy"].value for site in ("0", "1", "2")]
    assert found["mean"]["accuracy"].value == pytest.approx(np.mean(by_client))
    assert found["pooled"]["accuracy"].value == pytest.approx(((frame.score >= 0.5) == frame.target).mean())
    for part in (found["pooled"], found["mean"], *found["clients"].values()):
        assert all(0 < i.low < i.value < i.high < 1 for i in part.values())
    methods = {name: i.method for name, i in found["pooled"].items()}
    assert methods == {
        **dict.fromkeys(("accuracy", "sensitivity", "specificity"), "Clopper-Pearson"),
        "brier": "bootstrap",
        "auroc": "DeLong",
    }
    assert {i.method for i in found["mean"].values()} == {"square and add"}
    for end in (1, 2):
        apart = [found["clients"][site]["accuracy"][end] - by_client[int(site)] for site in ("0", "1", "2")]
        of_mean = found["mean"]["accuracy"][end] - np.mean(by_client)
        assert abs(of_mean) == pytest.approx(np.linalg.norm(apart) / 3)
    assert found == intervals(frame, seed=3)
    assert found["pooled"]["brier"] != intervals(frame, seed=4)["pooled"]["brier"]


def test_cases_in_groups_have_wider_intervals():
    """Every case three times, as one group: the intervals are of the cases, not of three times as many."""
    frame = table(1, 60)
    thrice = pd.concat([frame] * 3, ignore_index=True)
    once, grouped = (intervals(f)["pooled"] for f in (frame, thrice))
    alone = intervals(thrice.drop(columns="group"))["pooled"]
    for name in METRICS:
        widths = [i[name].high - i[name].low for i in (once, grouped, alone)]
        assert widths[1] == pytest.approx(widths[0], rel=0.12)
        assert widths[2] < 0.68 * widths[0]
    assert grouped["accuracy"].method == GROUPED


def test_a_share_of_all_has_an_interval_of_the_groups():
    frame = table(1, 20, per_group=3)
    frame["score"] = frame.target
    found = intervals(frame)["pooled"]
    low = 1 / (1 + 0.75 / 20 * stats.t.ppf(0.975, 25) ** 2)
    assert found["accuracy"][:3] == pytest.approx((1.0, low, 1.0))
    assert found["brier"].value == 0
    assert found["brier"].high == pytest.approx(exact(0, 20).high)


def test_a_metric_that_a_site_lacks_is_missing_there_and_in_the_mean():
    frame = table(2, 30)
    frame.loc[frame.site == 1, "target"] = 0
    found = intervals(frame)
    assert "auroc" not in found["clients"]["1"]
    assert found["mean"]["auroc"].value == pytest.approx(found["clients"]["0"]["auroc"].value)
    assert "accuracy" in found["clients"]["1"]


def test_scores_that_are_no_numbers_have_no_auroc():
    frame = table(2, 30)
    frame.loc[3, "score"] = np.nan
    found = intervals(frame)
    assert "auroc" not in found["pooled"]
    assert "auroc" in found["clients"]["1"]
    assert np.isnan(aurocs([1, 0, 1], [np.nan, 1, 2]).areas).all()


def test_one_group_has_a_value_and_no_interval():
    frame = table(1, 1, per_group=6)
    found = intervals(frame)["pooled"]["brier"]
    assert found.value > 0
    assert np.isnan([found.low, found.high]).all()
    both = pd.concat([frame.assign(site="alone"), table(1, 30)], ignore_index=True)
    assert np.isnan(intervals(both)["mean"]["brier"].low)  # of its part nothing is known


SCALES = {
    (-np.inf, np.inf): lambda x: x,
    (-np.inf, 1.0): lambda x: -np.log(1 - x),
    (0.0, 4.0): lambda x: np.log(x / (4 - x)),
}


@pytest.mark.parametrize("bounds", SCALES, ids=str)
def test_an_interval_is_symmetric_on_a_scale_without_bounds(bounds):
    """And as wide there as Student's t times the draws' deviation, to first order."""
    frame = table(1, 50)
    metric = Mean(lambda cases: cases.scores, bounds=bounds)
    found = intervals(frame, {"mean": metric})["pooled"]["mean"]
    low, value, high = map(SCALES[bounds], (found.low, found.value, found.high))
    assert high - value == pytest.approx(value - low)
    wide = 2 * stats.t.ppf(0.975, 49) * frame.score.std(ddof=1) / np.sqrt(50)
    assert found.high - found.low == pytest.approx(wide, rel=0.1)


def test_a_function_has_the_interval_of_the_same_metric():
    def mean(targets, scores, sample_weight):
        return np.average(scores, weights=sample_weight)

    frame = table(2, 20)
    metrics = {"function": ByFunction(mean), "mean": Mean(lambda cases: cases.scores)}
    found = intervals(frame, metrics, draws=200)["pooled"]
    assert found["function"][:3] == pytest.approx(found["mean"][:3])


def by_curve(frame):
    metric = OfCurve(AveragePrecision(Predicted("classes", 2)))
    return intervals(frame, {"ap": metric})["pooled"]["ap"]


def test_an_average_precision_has_the_variance_of_a_share_of_the_rarer_patients():
    frame = table(1, 30, per_group=2)
    rarer = frame.groupby("target").group.nunique().min()
    value = average_precision_score(frame.target, frame.score)
    half = stats.t.ppf(0.975, rarer - 1) / np.sqrt(rarer * value * (1 - value))
    found = by_curve(frame)
    assert found.value == pytest.approx(value)
    assert logit([found.low, found.high]) == pytest.approx([logit(value) - half, logit(value) + half])
    few = by_curve(frame[(frame.target == 0) | frame.group.isin(frame[frame.target == 1].group.unique()[:4])])
    assert np.isnan(few.low)
    assert few.method == "Too few events for an interval (it takes 5 of each class)"


@pytest.mark.parametrize("third", [4, 5])
def test_an_auroc_of_three_classes_takes_five_cases_of_each(third):
    target = np.repeat([0, 1, 2], [20, 20, third])
    scores = np.random.default_rng(0).dirichlet([1, 1, 1], len(target)) + np.eye(3)[target]
    frame = pd.DataFrame({f"score-{c}": scores[:, c] / 2 for c in range(3)}).assign(site=0, target=target)
    found = intervals(frame, {"auroc": METRICS["auroc"]}, draws=50)["pooled"]["auroc"]
    assert np.isnan(found.low) == (third < 5)


REPETITIONS = 150


@pytest.mark.slow
@pytest.mark.parametrize(
    "row", ["3 sites of 20 to 40, 50 % ill, 3 pictures", "3 sites of 30 to 100, 50 % ill"]
)
def test_they_hold_the_true_value_in_19_of_20_draws(row):
    """93 %, less than which the 150 draws may be by chance (three deviations of 1.8 %)."""
    found = coverage(rows_of_sites()[row], METRICS, REPETITIONS, "pooled", "mean")
    error = 3 * np.sqrt(0.95 * 0.05 / REPETITIONS)
    assert {name: len(held) for name, held in found.items() if len(held) < REPETITIONS / 2} == {}
    assert min(np.mean(held) for held in found.values()) > 0.93 - error


def cases_of(targets, scores, groups=None):
    groups = np.arange(len(targets)) if groups is None else np.asarray(groups)
    return Cases(np.asarray(targets), np.asarray(scores, float), groups, ("here",), (len(targets),))


@pytest.mark.parametrize("classes", [2, 4])
def test_the_ece_is_the_runs(classes):
    rng = np.random.default_rng(classes)
    scores = rng.dirichlet(np.ones(classes), 200)
    cases = cases_of(rng.integers(0, classes, 200), scores)
    ece = OfStates(OF_RUNS["ece"](Predicted("classes", classes)))
    assert calibration_test(cases, 15, draws=10).ece == pytest.approx(ece.value(cases))


def test_a_calibrated_models_is_that_of_all_outcomes_by_their_probabilities():
    """Three cases in two of four bins: 0.1 alone, 0.6 and 0.7 together."""
    scores = np.array([0.1, 0.6, 0.7])
    found = {}
    for outcome in product((0, 1), repeat=3):
        gap = abs(outcome[0] - 0.1) + abs(outcome[1] + outcome[2] - 1.3)
        chance = np.prod([p if y else 1 - p for y, p in zip(outcome, scores, strict=True)])
        found[outcome] = gap / 3, chance
    tested = calibration_test(cases_of([1, 0, 0], scores), 4, draws=40_000)
    assert tested.ece == pytest.approx(found[1, 0, 0][0])
    assert tested.expected == pytest.approx(sum(gap * chance for gap, chance in found.values()), abs=0.005)
    beyond = sum(chance for gap, chance in found.values() if gap >= tested.ece - 1e-9)
    assert tested.p_value == pytest.approx(beyond, abs=0.01)


@pytest.mark.slow
def test_of_a_calibrated_model_it_errs_in_a_twentieth_and_a_wrong_one_is_found():
    rng = np.random.default_rng(0)
    truth = rng.random((200, 50))
    outcomes = (rng.random(truth.shape) < truth).astype(int)
    pairs = zip(outcomes, truth, strict=True)
    p_values = [calibration_test(cases_of(*of), 15, draws=99).p_value for of in pairs]
    assert 0.01 <= np.mean(np.array(p_values) <= 0.05) <= 0.1  # 0.05 +- 3 deviations of 0.015
    wrong = calibration_test(cases_of(outcomes.ravel(), np.sqrt(truth.ravel())), 15)
    assert wrong.p_value < 0.01
    assert wrong.ece > wrong.most > wrong.expected


def test_cases_of_a_group_are_as_good_as_one():
    rng = np.random.default_rng(0)
    scores = rng.random(50)
    outcomes = (rng.random(50) < scores).astype(int)
    once = calibration_test(cases_of(outcomes, scores), 15)
    thrice = cases_of(np.repeat(outcomes, 3), np.repeat(scores, 3), np.repeat(np.arange(50), 3))
    assert calibration_test(thrice, 15) == pytest.approx(once)


@pytest.mark.parametrize("hit", [0, 1])
def test_a_share_of_all_or_none_by_groups_is_within_its_interval_to_the_last_bit(hit):
    """Wilson's end is then the share itself, which rounding had missed by 1e-16: no figure takes that."""
    for groups in range(2, 60):
        found = share(np.full(2 * groups, hit), np.arange(2 * groups) // 2)
        assert 0 <= found.low <= found.value == hit <= found.high <= 1
        assert (found.low, found.high)[hit] == hit
