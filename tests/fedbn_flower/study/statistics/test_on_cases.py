"""Tests of several methods on the same cases: each pair by itself, then Bonferroni's correction."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbn_flower.study.statistics.case_metrics import METRICS, Share
from fedbn_flower.study.statistics.on_cases import BOOTSTRAP, DELONG, MCNEMAR, compare_on_cases
from fedbn_flower.study.statistics.paired import delong_test, paired_bootstrap, score_test

from .test_intervals import table
from .test_paired import changed

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
def test_all_else_has_the_paired_bootstrap(name, per_group):
    frames = three(per_group)
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


@pytest.mark.slow
@settings(max_examples=40)  # of six orders
@given(st.permutations(range(3)), st.integers(0, 100))
def test_the_order_of_methods_and_of_rows_does_not_matter(order, seed):
    frames = three()
    expected = compare_on_cases(frames, METRICS["auroc"]).pairs
    mixed = compare_on_cases(
        [frames[i].sample(frac=1, random_state=seed) for i in order], METRICS["auroc"]
    ).pairs
    for i, j in PAIRS:
        assert mixed.of(i, j) == pytest.approx(expected.of(order[i], order[j]))
