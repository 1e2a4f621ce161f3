"""Thresholds, decision curves and calibration: numbers by hand, scikit-learn as the reference."""

import math
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, recall_score, roc_auc_score

from fedbn_flower import UserError
from fedbn_flower.records.cases import is_binary
from fedbn_flower.results.report.run_page import run_page
from fedbn_flower.results.run_reader import Run
from fedbn_flower.study.decisions import (
    POOLED,
    Counts,
    auroc,
    calibration,
    choose_threshold,
    counts_at,
    decision_curve,
    missed_in_silence,
    thresholds_by_site,
)
from fedbn_flower.study.decisions_by_site import decisions
from fedbn_flower.study.figures import calibration_curve, decision_curves


def cases(scores, targets, site="a"):
    return pd.DataFrame({"site": site, "target": np.asarray(targets, np.int64), "score": scores})


#             positives: 0.9, 0.6, 0.4, 0.2; negatives: 0.8, 0.5, 0.3, 0.1, 0.1, 0.05
TEN = cases([0.9, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.05], [1, 0, 1, 0, 1, 0, 1, 0, 0, 0])


@pytest.mark.parametrize(
    ("rule", "threshold"),
    [
        ("sensitivity=0.75", 0.4),  # three of four
        ("sensitivity=0.76", 0.2),
        ("specificity=0.5", 0.2),  # three of six negatives at 0.2 and above
        ("specificity=0.99", 0.9),  # none
        ("youden", 0.2),  # 1 - 3/6 = 0.5; at 0.4 it is 0.75 - 2/6 = 0.42, at 0.9 0.25
        ("net-benefit=0.5", 0.9),  # one true, none false; as good: 2 and 1, 3 and 2, 4 and 3
        ("net-benefit=0.2", 0.2),  # 4 - 3/4 = 3.25, more than 3 - 2/4 and 1
    ],
)
def test_thresholds_by_hand(rule, threshold):
    assert choose_threshold(TEN, rule) == threshold


def test_thresholds_at_the_edge():
    """None reaches a specificity that the highest negative has not; 1 - 4/5 is less than 0.2 in floats."""
    assert choose_threshold(cases([0.9, 0.8, 0.1], [0, 1, 0]), "specificity=0.9") == math.inf
    assert counts_at(TEN, math.inf) == Counts(0, 0, 4, 6)
    five = cases([0.9, 0.5, 0.4, 0.3, 0.2, 0.1], [1, 0, 0, 0, 0, 0])
    assert choose_threshold(five, "specificity=0.2") == 0.2


@pytest.mark.parametrize("targets", [[0, 0, 0], [1, 1, 1]])
def test_without_both_classes_there_is_no_threshold(targets):
    one = cases([0.1, 0.2, 0.3], targets)
    assert math.isnan(choose_threshold(one, "youden"))
    assert math.isnan(auroc(one))
    found = thresholds_by_site(one, "youden").iloc[0]
    assert math.isnan(found.threshold)
    assert math.isnan(found.missed)


def test_another_rule_is_one_line():
    line = r"^threshold: (missing|.* is not allowed); expected sensitivity=0.95, "
    for rule in ("", "youden=1", "sensitivity", "sensitivity=1", "sensitivity=0", "net-benefit=a", "f1=0.3"):
        with pytest.raises(UserError, match=line):
            choose_threshold(TEN, rule)


SCORES = st.lists(
    st.tuples(st.integers(0, 20).map(lambda i: i / 20), st.integers(0, 1)), min_size=2, max_size=60
).filter(lambda pairs: len({target for _, target in pairs}) == 2)


@pytest.mark.slow
@settings(max_examples=15)  # each tries every threshold by scikit-learn
@given(SCORES, st.sampled_from([0.1, 0.5, 0.8, 0.95]))
def test_thresholds_are_the_best_of_all(pairs, wanted):
    """By trial of every threshold, with scikit-learn's own figures."""
    table = cases(*zip(*pairs, strict=True))
    tried = {
        at: recall_score(table.target, table.score >= at, labels=[1, 0], average=None)
        for at in {math.inf, *table.score}
    }
    assert choose_threshold(table, f"sensitivity={wanted}") == max(
        at for at, (found, _) in tried.items() if found >= wanted
    )
    assert choose_threshold(table, f"specificity={wanted}") == min(
        at for at, (_, kept) in tried.items() if kept >= wanted - 1e-12
    )
    best = max(both.mean() for both in tried.values())
    youden = choose_threshold(table, "youden")
    assert balanced_accuracy_score(table.target, table.score >= youden) == pytest.approx(best)
    chosen = counts_at(table, choose_threshold(table, f"net-benefit={wanted}")).net_benefit(wanted)
    assert chosen == pytest.approx(max(counts_at(table, at).net_benefit(wanted) for at in tried))


def test_counts_are_those_of_scikit_learn():
    for at in (0.0, 0.1, 0.3, 0.55, 1.0):
        tn, fp, fn, tp = confusion_matrix(TEN.target, TEN.score >= at, labels=[0, 1]).ravel()
        assert counts_at(TEN, at) == Counts(tp, fp, fn, tn)


def test_each_site_has_the_threshold_that_it_has_chosen():
    other = cases(TEN.score / 2, TEN.target, "b")
    both = pd.concat([TEN, other])
    found = thresholds_by_site(both, "sensitivity=0.75")
    assert found.site.tolist() == ["a", "b"]
    assert found.threshold.tolist() == [0.4, 0.2]
    assert found.missed.tolist() == [1, 1]
    assert found.positives.tolist() == [4, 4]
    assert found.specificity.tolist() == [4 / 6, 4 / 6]
    together = thresholds_by_site(both, "sensitivity=0.75", pooled=True)
    assert together.threshold.tolist() == [0.2, 0.2]  # positives: 0.9, 0.6, 0.45, 0.4, 0.3, 0.2, 0.2, 0.1
    assert together.missed.tolist() == [0, 1]
    assert set(thresholds_by_site(TEN, "youden", applied_to=other).site) == {"b"}


def test_a_decision_curve_by_hand():
    found = decision_curve(TEN, [0.2, 0.5]).set_index("probability")
    assert found.loc[0.2, "model"] == pytest.approx(4 / 10 - 3 / 10 * 0.25)
    assert found.loc[0.5, "model"] == pytest.approx(2 / 10 - 2 / 10)
    assert found.loc[0.2, "all"] == pytest.approx(4 / 10 - 6 / 10 * 0.25)
    assert found.loc[0.5, "all"] == pytest.approx(4 / 10 - 6 / 10)
    assert (found.nobody == 0).all()
    assert len(decision_curve(TEN)) == 99
    with pytest.raises(ValueError, match="^probabilities: 1 is not between 0 and 1$"):
        decision_curve(TEN, [1])


def test_calibration_by_hand():
    """45 cases in bins of at least 20 are two: 22 and 23, of which 5 and 11 are positive."""
    scores = np.arange(45) / 100
    targets = np.zeros(45)
    targets[[0, 5, 10, 15, 20, *range(30, 41)]] = 1
    found = calibration(cases(scores[::-1], targets[::-1]))
    assert found.cases.tolist() == [22, 23]
    assert found.positives.tolist() == [5, 11]
    assert found.share.tolist() == [5 / 22, 11 / 23]
    assert found.score.tolist() == pytest.approx([0.105, 0.33])
    low, high = found.loc[0, ["low", "high"]]
    assert binom.sf(4, 22, low) == pytest.approx(0.025)  # Clopper and Pearson 1934
    assert binom.cdf(5, 22, high) == pytest.approx(0.025)
    by_patient = calibration(cases(scores[::-1], targets[::-1]).assign(group=np.arange(45) % 2))
    assert by_patient.loc[0, "low"] < low
    assert by_patient.loc[0, "high"] > high
    assert calibration(TEN).empty  # of fewer than 20 cases
    assert len(calibration(pd.concat([TEN, TEN]))) == 1


@given(
    st.lists(st.tuples(st.integers(0, 9).map(lambda i: i / 9), st.integers(0, 1)), max_size=300),
    st.integers(1, 12),
)
def test_bins_have_all_cases_once_and_divide_no_equal_scores(pairs, bins):
    table = cases(*(zip(*pairs, strict=True) if pairs else ([], [])))
    found = calibration(table, bins)
    assert len(found) <= bins
    assert (found.cases >= 20).all()
    assert found.cases.sum() == (len(table) if len(table) >= 20 else 0)
    assert found.positives.sum() == (table.target.sum() if len(table) >= 20 else 0)
    assert found.score.is_monotonic_increasing
    assert (found.low <= found.share).all()
    assert (found.share <= found.high).all()


def many(found, missed, negatives, site="a", low=0.4):
    """Positives that are all above the negatives, some of them below 0.5."""
    scores = [0.9] * found + [low] * missed + [0.01] * negatives
    return cases(scores, [1] * (found + missed) + [0] * negatives, site)


def test_a_model_that_misses_most_positives_in_silence():
    assert missed_in_silence(many(5, 12, 300), "ill") == [
        "AUROC 1.00, but 12 of 17 events (ill) are missed at 0.5: choose a threshold, such as 0.4, which "
        "misses 0 here at a specificity of 1.00 (Youden)"
    ]
    assert missed_in_silence(many(9, 8, 300), "ill") == []  # more than half are found
    assert missed_in_silence(many(1, 3, 300), "ill") == []  # too few to say
    assert missed_in_silence(many(5, 12, 300, low=0.001), "ill") == []  # AUROC 0.29
    assert missed_in_silence(many(0, 17, 0), "ill") == []


def test_it_is_said_of_all_sites_or_of_each():
    good = many(60, 0, 10, "good")
    bad = [many(1, 5, 100, f"bad {i}") for i in range(5)]
    lines = missed_in_silence(pd.concat([good, *bad]), "ill")
    assert lines[0].startswith("site bad 0: AUROC 1.00, but 5 of 6 events (ill) are missed at 0.5: choose")
    assert lines[3:] == ["and 2 more sites"]
    (together,) = missed_in_silence(pd.concat([bad[0], bad[1]]), "ill")
    assert together.startswith("all sites pooled: AUROC 1.00, but 10 of 12 events (ill) are missed at 0.5")


@pytest.mark.parametrize(
    ("table", "binary"),
    [
        (TEN, True),
        (TEN.assign(target=TEN.target.astype(float)), False),  # a number
        (TEN.assign(target=TEN.target * 2), False),
        (TEN.drop(columns="score"), False),
    ],
)
def test_only_two_classes_have_thresholds(table, binary):
    assert is_binary(table) is binary
    assert list(decisions(None, "ill")) == []


def test_the_end_of_a_run_and_its_report_say_what_is_missed(run, caplog):
    """Of two sites with a rare outcome, of which a model in its first rounds has no high probability."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 4)).astype(np.float32)
    y = (x[:, 0] + 0.3 * rng.normal(size=800) > 1.6).astype(np.int64)
    keys = {"num_clients": 2, "partition": "iid", "client": "shared", "strategy": "fedavg"}
    keys |= {"model": "linear", "client_lr": 1.0, "rounds": 5, "eval_data": "local"}
    with caplog.at_level("WARNING", "flwr.fedbn"):
        result = run(data=(x[:400], y[:400], x[400:], y[400:]), **keys)
    page, table = run_page(Run.read(result.folder)), result.predictions
    (line,) = missed_in_silence(table, "class 1")
    assert line in caplog.messages
    assert f"<p>{line}</p>" in page
    for name, value in (
        ("AUROC", f"{roc_auc_score(table.target, table.score):.3f}"),
        ("expected over observed events (1 if calibrated)", f"{table.score.sum() / table.target.sum():.2f}"),
        (f"events (class 1) of {len(table)} held-out cases", str(table.target.sum())),
    ):
        assert f"<dt>{name}</dt><dd>{value}</dd>" in page
    section = page.partition("<h2>Decisions by site</h2>")[2].partition("</section>")[0]
    names = re.findall(r"<th(?: [^>]*)?>(.*?)</th>", section)
    found = [
        dict(zip(names, re.findall(r"<td[^>]*>(.*?)</td>", row), strict=True))
        for row in re.findall(r"<tr>(<td.*?)</tr>", section)
    ]
    assert [row["site"] for row in found] == ["0", "1", "all sites pooled"]
    of_rows = [table[table.site == "0"], table[table.site == "1"], table]
    for cells, of_row in zip(found, of_rows, strict=True):
        assert int(cells["cases"]) == len(of_row)
        assert int(cells["events (class 1)"]) == of_row.target.sum()
        assert int(cells["missed at 0.5"]) == counts_at(of_row, 0.5).fn
        assert float(cells["AUROC"]) == pytest.approx(roc_auc_score(of_row.target, of_row.score), abs=5e-4)
        usual = counts_at(of_row, 0.5)
        ends = binomtest(usual.tn, usual.tn + usual.fp).proportion_ci(method="exact")
        assert cells["specificity at 0.5"] == f"{usual.specificity:.3f} ({ends.low:.3f} to {ends.high:.3f})"
        chosen = counts_at(of_row, choose_threshold(of_row, "youden"))
        assert int(cells["missed"]) == chosen.fn
        assert float(cells["specificity"]) == pytest.approx(chosen.specificity, abs=5e-4)


def test_of_many_sites_those_are_shown_that_miss_most(monkeypatch):
    """And cases that belong together have no intervals of single ones: here each site is one group."""
    monkeypatch.setattr("fedbn_flower.study.decisions_by_site.MOST_SITES", 3)
    monkeypatch.setattr("fedbn_flower.study.decisions_by_site.MOST_DRAWN", 3)
    sites = pd.concat([many(2, i, 20, f"s{i}") for i in range(5)])
    page = "".join(decisions(sites, "ill"))
    assert "The 3 of 5 sites that miss most events at 0.5." in page
    assert re.findall(r"<tr><td>(s\d+)</td>", page) == ["s4", "s3", "s2"]
    grouped = "".join(decisions(sites.assign(group=1), "ill"))
    found = [text.partition("</table>")[0].partition(POOLED)[0] for text in (page, grouped)]
    assert [" to " in text for text in found] == [True, False]


def test_figures_have_the_points_of_the_tables():
    rng = np.random.default_rng(1)
    table = cases(rng.random(200), rng.integers(0, 2, 200))
    (axes,) = decision_curves(table, "ill").axes
    drawn = {line.get_label(): line.get_xydata() for line in axes.lines}
    expected = decision_curve(table)
    for name in ("model", "all", "nobody"):
        np.testing.assert_array_equal(drawn[name], expected[["probability", name]])
    (axes,) = calibration_curve(table, "ill").axes
    expected = calibration(table)
    np.testing.assert_array_equal(axes.lines[1].get_xydata(), expected[["score", "share"]])
    ends = np.array([bar for bar in axes.collections[0].get_segments()])
    np.testing.assert_allclose(ends[:, :, 1], expected[["low", "high"]])
    assert calibration_curve(TEN, "ill") is None


def test_each_sites_figures_are_a_click_away():
    page = "".join(decisions(pd.concat([many(20, 20, 30, "a"), many(2, 2, 30, "b")]), "ill"))
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page)
    assert captions == [
        f"{figure}{of}" for of in ("", ", site a", ", site b") for figure in ("Decision curve", "Calibration")
    ]
    assert page.count("<details>") == 1
