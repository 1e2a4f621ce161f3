"""Tests between methods against worked examples, SciPy, and simulation."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks.winners import NOISES, SETTINGS, differences, false_winners, false_winners_of_two
from fedbn_flower.study.statistics.case_metrics import METRICS, Share
from fedbn_flower.study.statistics.paired import (
    BOOTSTRAP,
    DELONG,
    MCNEMAR,
    cannot_be_told_from_best,
    compare_on_cases,
    delong_test,
    friedman,
    holm,
    mcnemar,
    nemenyi_critical_difference,
    paired_bootstrap,
    paired_t_tests,
    score_test,
    wilcoxon_against,
    wilcoxon_tests,
)
from tests.quick import diagonal_quick

from .test_intervals import by_all_pairs, table

DEMSAR = {
    "C4.5": [.763, .599, .954, .628, .882, .936, .661, .583, .775, 1, .940, .619, .972, .957],
    "C4.5+m": [.768, .591, .971, .661, .888, .931, .668, .583, .838, 1, .962, .666, .981, .978],
    "C4.5+cf": [.771, .590, .968, .654, .886, .916, .609, .563, .866, 1, .965, .614, .9751, .946],
    "C4.5+m+cf": [.798, .569, .967, .657, .898, .931, .685, .625, .875, 1, .962, .669, .975, .970],
}  # fmt: skip
"""J. Demšar, JMLR 7, 2006, table 6. It prints 0.975 twice for the last but one set and ranks them 2 and 3."""


def test_mcnemars_on_fagerlands_example():
    """One pair of one kind, seven of the other: exact 0.070, mid-p 0.039 (Fagerland et al., 2013)."""
    first, second = [1] + [0] * 7 + [1, 0] * 6, [0] + [1] * 7 + [1, 0] * 6
    found = mcnemar(first, second)
    assert (found.first_only, found.second_only) == (1, 7)
    assert (found.exact, found.mid_p) == pytest.approx((18 / 256, 10 / 256))


def test_mcnemars_without_a_difference():
    assert mcnemar([1, 1, 0], [1, 1, 0])[2:] == (1, 1)
    found = mcnemar([1, 1, 0, 0], [0, 0, 1, 1])  # 2 and 2: half of the 6/16 of the middle is left out
    assert (found.exact, found.mid_p) == pytest.approx((1, 1 - 3 / 16))


def test_tangos_interval_on_fagerlands_example():
    """-0.517 to -0.026: M. Fagerland, S. Lydersen and P. Laake, Recommended tests and confidence intervals
    for paired binomial proportions, Statistics in Medicine 33(16), 2014. McNemar's statistic is 6^2 / 8."""
    first, second = [1] + [0] * 7 + [1, 0] * 6 + [0], [0] + [1] * 7 + [1, 0] * 6 + [0]
    found = score_test(first, second)
    assert found[:3] == pytest.approx((-6 / 21, -0.517, -0.026), abs=5e-4)
    assert found.p_value == pytest.approx(stats.chi2.sf(36 / 8, 1))
    square = stats.norm.ppf(0.975) ** 2
    end = square / (21 + square)  # without differences the score's root is in closed form
    assert score_test(first, first) == pytest.approx((0, -end, end, 1))
    low = (9 - square) / (9 + square)  # all differ: twice Wilson's end of nine of nine, less one
    assert score_test([1] * 9, [0] * 9)[:3] == pytest.approx((1, low, 1))


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 40), st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_tangos_interval_and_mcnemars_p_value_agree(first_only, second_only, same, level):
    counts = [first_only, second_only, same + 1]
    found = score_test(np.repeat([1, 0, 1], counts), np.repeat([0, 1, 1], counts), level)
    assert -1 <= found.low <= found.difference <= found.high <= 1
    if abs(found.p_value - (1 - level)) > 1e-9:
        assert (found.low <= 0 <= found.high) == (found.p_value > 1 - level)


def test_delongs_test_written_again():
    frame, other = table(1, 70), table(1, 70, seed=1)
    scores = np.stack([frame.score, 0.5 * frame.score + 0.5 * other.score])
    (first, second), covariance = by_all_pairs(frame.target, scores)
    deviation = np.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
    found = delong_test(frame.target, *scores)
    assert found.difference == pytest.approx(first - second)
    few = min(frame.target.sum(), 70 - frame.target.sum()) - 1  # degrees of freedom: at least, 68 at most
    p_values = [2 * stats.t.sf(abs(first - second) / deviation, freedom) for freedom in (few, 68)]
    assert p_values[1] < found.p_value < p_values[0]
    widths = [2 * stats.t.ppf(0.975, freedom) * deviation for freedom in (few, 68)]
    assert widths[1] < found.high - found.low < widths[0]
    assert delong_test(frame.target, scores[0], scores[0]) == (0, 0, 0, 1)


def changed(frame, seed=1):
    rng = np.random.default_rng(seed)
    return frame.assign(score=np.clip(frame.score + 0.3 * rng.normal(size=len(frame)), 0, 1))


def test_the_bootstrap_of_a_mean_difference_is_the_paired_t_test():
    """SciPy's of the errors of single cases of one site, but for what 20,000 draws vary."""
    first, second = table(1, 60), changed(table(1, 60))
    errors = [(frame.score - frame.target) ** 2 for frame in (first, second)]
    found = paired_bootstrap(first, second, METRICS["brier"], draws=20_000)
    expected = stats.ttest_rel(*errors)
    interval = expected.confidence_interval()
    assert found.difference == pytest.approx(np.mean(errors[0] - errors[1]))
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=5e-4)
    assert found.p_value == pytest.approx(expected.pvalue, rel=0.1)


def test_the_order_of_rows_does_not_matter_and_the_mean_is_over_sites():
    first = table(3, 20, per_group=2)
    second = changed(first)
    mixed = second.sample(frac=1, random_state=0)
    for over in ("pooled", "mean"):
        found = paired_bootstrap(first, second, METRICS["auroc"], 5, over)
        assert paired_bootstrap(first, mixed, METRICS["auroc"], 5, over) == found
    of_sites = [
        auroc_of(first[first.site == site]) - auroc_of(second[second.site == site]) for site in range(3)
    ]
    assert found.difference == pytest.approx(np.mean(of_sites))
    assert paired_bootstrap(first, first, METRICS["auroc"]) == (0, 0, 0, 1)


def auroc_of(frame):
    return delong_test(frame.target, frame.score, frame.target * 0).difference + 0.5


def test_other_cases_are_refused():
    frame = table(2, 5)
    with pytest.raises(ValueError, match="different cases: their sites or ids differ"):
        paired_bootstrap(frame, frame.iloc[:-1], METRICS["brier"])
    with pytest.raises(ValueError, match="different targets"):
        paired_bootstrap(frame, frame.assign(target=1 - frame.target), METRICS["brier"])


def test_holms_by_hand():
    """0.01 x 4, then 0.02 x 3, 0.03 x 2 = 0.06 and not 0.04 x 1, which is less than the one before."""
    assert holm([0.04, 0.01, 0.03, 0.02]).tolist() == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.9, 0.8]).tolist() == [1, 1]


def test_friedmans_and_nemenyis_on_demsars_example():
    """He prints ranks 3.143, 2.000, 2.893, 1.964, the statistic 9.28 without a correction for ties, and
    critical differences of 1.25 at 5 % and 1.12 at 10 %."""
    values = np.array(list(DEMSAR.values())).T
    found = friedman(values)
    assert found.mean_ranks == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)
    uncorrected = 12 * 14 / (4 * 5) * (np.square(found.mean_ranks).sum() - 4 * 5**2 / 4)
    assert uncorrected == pytest.approx(9.28, abs=0.005)
    ties = (4**3 - 4) + 3 * (2**3 - 2)  # four 1.000, and three pairs
    assert found.statistic == pytest.approx(uncorrected / (1 - ties / (14 * (4**3 - 4))))
    assert found.p_value == pytest.approx(stats.chi2.sf(found.statistic, 3))
    assert found.critical_difference == pytest.approx(1.25, abs=0.005)
    assert nemenyi_critical_difference(4, 14, 0.90) == pytest.approx(1.12, abs=0.005)
    assert friedman(-values, higher_is_better=False).mean_ranks.tolist() == found.mean_ranks.tolist()


@pytest.mark.parametrize(("methods", "quantile"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_nemenyis_quantiles_are_those_of_demsars_table_5(methods, quantile):
    found = nemenyi_critical_difference(methods, 6 * methods * (methods + 1)) * 6
    assert found == pytest.approx(quantile, abs=1e-3)


def test_wilcoxons_on_demsars_example():
    """C4.5 with and without the parameter m: he finds the smaller sum of ranks, 12, below the critical 21."""
    pair = {name: DEMSAR[name] for name in ("C4.5", "C4.5+m")}
    found = wilcoxon_against(pair, "C4.5")
    expected = stats.wilcoxon(*pair.values(), zero_method="zsplit")
    assert expected.statistic == 12
    assert found == {"C4.5+m": expected.pvalue}
    assert wilcoxon_against({"a": pair["C4.5"], "b": pair["C4.5"]}, "a") == {"b": 1.0}
    three = wilcoxon_against(DEMSAR, "C4.5")
    assert list(three) == ["C4.5+m", "C4.5+cf", "C4.5+m+cf"]
    assert three["C4.5+m"] == pytest.approx(3 * found["C4.5+m"])


@settings(max_examples=20)
@given(st.lists(st.sampled_from([-0.5, -0.25, 0.0, 0.25, 0.5, 1.0]), min_size=2, max_size=7).filter(any))
def test_with_ties_and_zeros_wilcoxons_are_scipys_of_all_signs(differences):
    values = {"a": np.zeros(len(differences)), "b": np.array(differences)}
    of_all_signs = stats.wilcoxon(differences, zero_method="zsplit", method=stats.PermutationMethod())
    assert wilcoxon_against(values, "a") == {"b": of_all_signs.pvalue}


def cells(*rows):
    return dict(zip("abcdefgh", map(np.array, rows), strict=False))


STEPS = np.array([0.0, 0.01, -0.01, 0.02, -0.02])


def test_all_pairs_by_wilcoxon_are_scipys_with_bonferronis_correction():
    rows = np.random.default_rng(2).normal(size=(3, 8)) + np.array([[0], [1], [2]])
    found = wilcoxon_tests("abc", rows, np.arange(3.0)).every()
    expected = [3 * stats.wilcoxon(rows[i], rows[j]).pvalue for i, j in [(0, 1), (0, 2), (1, 2)]]
    assert [one.p_value for one in found.values()] == pytest.approx(np.minimum(expected, 1))
    assert [*found] == [("a", "b"), ("a", "c"), ("b", "c")]


def test_differences_over_seeds_have_intervals_of_all_pairs_together():
    """By hand: -0.5 twice, 0 and 0.5 twice have a mean of 0 and a deviation of 0.5, and so an error of
    0.5 / sqrt(5). Of three pairs each interval is of 1 - 0.05 / 3, by Student's t with 4 degrees."""
    steps = np.array([-0.5, -0.5, 0.0, 0.5, 0.5])
    found = paired_t_tests(cells(steps + 2, np.zeros(5), np.full(5, 0.25)))
    half = 3.9608 * 0.5 / np.sqrt(5)
    assert found.of(0, 1)[:3] == pytest.approx((2, 2 - half, 2 + half), abs=1e-4)
    assert found.of(1, 0)[:3] == pytest.approx((-2, -2 - half, -2 + half), abs=1e-4)
    assert found.of(0, 1).p_value == pytest.approx(3 * stats.ttest_1samp(steps + 2, 0).pvalue)
    assert found.of(1, 2) == (-0.25, -0.25, -0.25, 0)  # the same under each seed


@given(st.lists(st.integers(-8, 8), min_size=5, max_size=9), st.sampled_from([0.0, 0.125, 0.5]))
def test_an_interval_leaves_out_0_if_and_only_if_the_difference_is_told(steps, resolution):
    rows = cells(np.array(steps) / 8, np.zeros(len(steps)), np.full(len(steps), 7.0))
    found = paired_t_tests(rows, resolution).of(0, 1)
    assert (found.low <= 0 <= found.high) == (found.p_value > 0.05)


def test_those_that_are_clearly_behind_are_told_from_the_best():
    """Behind by 0 and 0.005 with deviations over seeds of 0.016; behind by 0.5 with the same deviation."""
    values = cells(0.9 + STEPS, 0.895 - STEPS, 0.4 + STEPS[::-1])
    assert cannot_be_told_from_best(values)[:3] == ("a", ("a", "b"), "")
    assert cannot_be_told_from_best(values, higher_is_better=False)[:3] == ("c", ("c",), "")
    assert cannot_be_told_from_best({"a": STEPS})[:3] == ("a", ("a",), "")  # one cell is the best


def test_it_is_the_paired_t_test_with_bonferronis_correction():
    rng = np.random.default_rng(0)
    values = dict(enumerate(rng.normal(size=(4, 8)) + np.arange(4)[:, None] * 0.9))
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    p_values = [6 * stats.ttest_rel(values[i], values[j]).pvalue for i, j in pairs]
    alike = {3} | {i for (i, j), p in zip(pairs, p_values, strict=True) if j == 3 and p > 0.05}
    assert cannot_be_told_from_best(values)[:3] == (3, tuple(sorted(alike)), "")
    assert 1 < len(alike) < 4
    for level in (0.5, 0.9, 0.99):
        expected = {3} | {i for (i, j), p in zip(pairs, p_values, strict=True) if j == 3 and p > 1 - level}
        assert set(cannot_be_told_from_best(values, level=level).alike) == expected


def test_a_constant_difference_is_one_and_none_is_none():
    values = cells(0.5 + STEPS, 0.5 + STEPS, 0.25 + STEPS)
    assert cannot_be_told_from_best(values).alike == ("a", "b")
    flat = cells(np.full(5, 0.5), np.full(5, 0.25))
    assert cannot_be_told_from_best(flat).alike == ("a",)


def test_with_few_seeds_or_events_nothing_is_known():
    four = cells(0.9 + STEPS[:4], 0.1 + STEPS[:4])
    assert cannot_be_told_from_best(four)[:3] == ("a", ("a", "b"), "only 4 seeds; at least 5 are needed")
    one = cells([0.1], [0.9])
    assert cannot_be_told_from_best(one)[:3] == ("b", ("a", "b"), "only 1 seed; at least 5 are needed")
    five = cells(0.9 + STEPS, 0.1 + STEPS)
    reason = "only 29 held-out cases outside the most frequent class; at least 30 are needed"
    assert cannot_be_told_from_best(five, events=29)[:3] == ("a", ("a", "b"), reason)
    assert cannot_be_told_from_best(five, events=30)[:3] == ("a", ("a",), "")


def test_seeds_that_a_cell_lacks_are_left_out():
    behind = 0.1 + STEPS
    values = cells(np.append(0.9 + STEPS[::-1], 0.9), np.append(behind, np.nan), np.full(6, np.nan))
    assert cannot_be_told_from_best(values)[:3] == ("a", ("a",), "")
    values["b"][0] = np.nan  # four seeds in common: nothing is known of this cell
    assert cannot_be_told_from_best(values)[:3] == ("a", ("a", "b"), "only 4 seeds; at least 5 are needed")
    third = {**values, "d": np.append(0.1 + STEPS, 0.1)}
    assert cannot_be_told_from_best(third)[:3] == ("a", ("a", "b"), "")
    with pytest.raises(ValueError, match="no cell has a value"):
        cannot_be_told_from_best(cells([np.nan]))


SWEEPS = 400


@pytest.mark.sampled(8)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("number", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_equal_methods_have_a_false_winner_in_one_sweep_of_twenty_at_most(noise, number):
    """5 %, more than which 400 sweeps may be by chance (three deviations of 1.1 %)."""
    seeds = 15 if number == 6 and [*NOISES].index(noise) % 2 else 5
    share = false_winners("ours", noise, number, seeds, SWEEPS)
    assert share <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / SWEEPS)


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "seeds"), diagonal_quick([*NOISES], [5, 10]))
def test_of_many_sweeps_of_two_no_more_have_a_false_winner(noise, seeds):
    """200,000 sweeps: chance moves 5 % by 0.05, three times which is allowed."""
    assert false_winners_of_two(noise, seeds) <= 0.0515


def all_outcomes(steps, seeds):
    """The chance of each sequence of differences over seeds, of two equal rows."""
    for drawn in product(steps, repeat=seeds):
        yield np.array(drawn, float), np.prod([steps[d] for d in drawn])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "by_t_alone"),
    [
        ({-1: 0.5, 1: 0.5}, 2 / 2**5),  # all five of one sign
        ({-1: 0.4, 0: 0.2, 1: 0.4}, 2 * (0.4**5 + 5 * 0.4**4 * 0.2)),  # at most one of five is a tie
        ({-3: 1 / 8, -1: 3 / 8, 1: 3 / 8, 3: 1 / 8}, 2 / 2**5),  # all five of one sign, however large
    ],
)
def test_single_cases_make_no_winner(steps, by_t_alone):
    """Exact: of two equal rows that differ by one to three cases the t-test has a winner in 6.3 to 7.2 %."""
    told = {0.0: 0.0, 1.0: 0.0}
    for outcome, chance in all_outcomes(steps, 5):
        rows = {"a": outcome, "b": np.zeros(5)}
        for resolution in told:
            alike = cannot_be_told_from_best(rows, resolution=resolution).alike
            told[resolution] += chance * (len(alike) == 1)
    assert told[0.0] == pytest.approx(by_t_alone)
    assert told[1.0] <= 0.05


def test_more_than_a_case_is_told_as_before():
    values = cells(0.9 + STEPS, 0.85 + STEPS)
    assert cannot_be_told_from_best(values, resolution=0.05).alike == ("a", "b")
    assert cannot_be_told_from_best(values, resolution=0.049).alike == ("a",)


@pytest.mark.slow
def test_equal_models_differ_at_five_percent_in_one_draw_of_twenty():
    found = differences(SETTINGS["sites of 30, 60 and 100 patients"], 60)
    assert len(found) == 7
    assert max(found.values()) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60)


PAIRS = [(0, 1), (0, 2), (1, 2)]


def three(per_group=1, sites=2):
    frame = table(sites, 60, per_group=per_group)
    return [frame, changed(frame), changed(frame, 2)]


def of_pairs(compare):
    """The comparison of each pair by itself, at the level and with the p-value of three."""
    found = [compare(i, j, 1 - 0.05 / 3) for i, j in PAIRS]
    return [pytest.approx((*one[:3], min(1, 3 * one.p_value))) for one in found]


def found_of(tests):
    return [*tests.pairs.every().values()]


def test_a_share_of_single_cases_has_mcnemars_by_hand():
    frames = three()
    found = compare_on_cases(frames, METRICS["accuracy"])
    right = [(frame.score >= 0.5) == frame.target for frame in frames]
    assert found.test == MCNEMAR
    assert found.pairs.values == pytest.approx([r.mean() for r in right])
    assert found_of(found) == of_pairs(lambda i, j, level: score_test(right[i], right[j], level))
    ill = frames[0].target == 1
    of_ill = compare_on_cases(frames, METRICS["sensitivity"])
    assert found_of(of_ill) == of_pairs(lambda i, j, level: score_test(right[i][ill], right[j][ill], level))


@pytest.mark.parametrize("per_group", [1, 3])
def test_an_auroc_has_delongs_with_groups(per_group):
    frames = three(per_group)
    found = compare_on_cases(frames, METRICS["auroc"])
    groups = None if per_group == 1 else frames[0].site.astype(str) + "/" + frames[0].group.astype(str)
    assert found.test == DELONG
    assert found_of(found) == of_pairs(
        lambda i, j, level: delong_test(frames[0].target, frames[i].score, frames[j].score, groups, level)
    )


@pytest.mark.parametrize(("name", "per_group"), [("brier", 1), ("accuracy", 3)])
def test_all_else_has_the_paired_bootstrap(name, per_group, monkeypatch):
    """Draws that do not fit into memory at once, too."""
    frames = three(per_group)
    monkeypatch.setattr("fedbn_flower.study.statistics.intervals.WEIGHTS_AT_A_TIME", 300 * len(frames[0]))
    found = compare_on_cases(frames, METRICS[name], seed=4)
    assert found.test == BOOTSTRAP.format("cases" if per_group == 1 else "groups")
    assert found_of(found) == of_pairs(
        lambda i, j, level: paired_bootstrap(frames[i], frames[j], METRICS[name], 4, level=level)
    )


def test_shares_of_other_cases_for_each_method_have_the_bootstrap():
    def is_called(cases):
        return cases.scores >= 0.5

    precision = Share(lambda cases: cases.targets == 1, of=is_called)
    assert compare_on_cases(three(), precision).test == BOOTSTRAP.format("cases")


def test_where_a_test_is_undefined_nothing_is_told():
    frames = [frame.assign(target=1) for frame in three()]
    assert [found.p_value for found in found_of(compare_on_cases(frames, METRICS["auroc"]))] == [1, 1, 1]


def test_other_groups_are_refused():
    frame = table(1, 20, per_group=2)
    with pytest.raises(ValueError, match="different groups for the same cases"):
        compare_on_cases([frame, frame.assign(group=0)], METRICS["accuracy"])


def test_the_order_of_methods_and_of_rows_does_not_matter():
    frames, order = three(), (2, 0, 1)
    expected = compare_on_cases(frames, METRICS["auroc"]).pairs
    mixed = compare_on_cases(
        [frames[i].sample(frac=1, random_state=0) for i in order], METRICS["auroc"]
    ).pairs
    for i, j in PAIRS:
        assert mixed.of(i, j) == pytest.approx(expected.of(order[i], order[j]))
