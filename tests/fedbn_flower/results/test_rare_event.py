"""Tables of a rare event begin with AUROC, sensitivity and calibration; scikit-learn is the reference."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from fedbn_flower.results.progress import summary_table
from fedbn_flower.results.rare_event import LEADING, led_by_rare_event, main_first
from fedbn_flower.results.report.results_table import results_table
from fedbn_flower.results.report.runs_by_seed import common_metric
from fedbn_flower.results.report.sections.client_tables import metrics_table
from fedbn_flower.results.report.sweep_page import curves_figure, metric_by_round
from fedbn_flower.results.run_reader import Run

from .html_page import Page, page
from .written_cases import summary_of_cases, write_cases

NAMES = ["AUROC", "sensitivity at specificity 0.9", "expected over observed events"]


def two_sites(events, seed=0, cases=30):
    """So many cases of each site, of which the first ones are events."""
    rng = np.random.default_rng(seed)
    found = {}
    for site, (name, count) in enumerate(zip(("lyon", "turin"), events, strict=True)):
        targets = (np.arange(cases) < count).astype(np.int64)
        score = np.clip(rng.random(cases) * 0.5 + 0.3 * targets, 0, 1)
        rows = np.arange(cases) + cases * site
        found[name] = {"rows": rows, "scores": np.stack([1 - score, score], 1), "targets": targets}
    return found


def expected(*sites):
    score = np.concatenate([site["scores"][:, 1] for site in sites])
    truth = np.concatenate([site["targets"] for site in sites])
    false_positive_rate, sensitivity, _ = roc_curve(truth, score, drop_intermediate=False)
    at = sensitivity[false_positive_rate <= 0.1 + 1e-12].max()
    return [f"{value:.3f}" for value in (roc_auc_score(truth, score), at)] + [score.sum() / truth.sum()]


def assert_leads(cells, *sites):
    area, sensitivity, calibration = expected(*sites)
    assert cells[:2] == [area, sensitivity]
    assert float(cells[2]) == pytest.approx(calibration, abs=6e-4)


@pytest.mark.parametrize("of_server", [None, {"accuracy": 0.5, "loss": 1.0}])
def test_tables_of_a_rare_event_begin_with_what_says_something(tmp_path, configured, of_server):
    cases = two_sites((4, 3))
    summary = summary_of_cases(cases, **{"global": of_server})
    run = Run.read(write_cases(tmp_path / "run", cases, summary=summary))
    table = metrics_table(run)
    start = list(table.header).index("AUROC")
    assert table.header[start:] == [*NAMES, "accuracy", "loss"]
    rows = {row[0]: row[start:] for row in table.rows}
    for row, sites in (("client lyon", ["lyon"]), ("all clients' examples pooled", ["lyon", "turin"])):
        assert_leads(rows[row], *(cases[site] for site in sites))
    assert rows["mean over examples"][:3] == [""] * 3
    of_sites = results_table(run)
    assert of_sites.header[:6] == ["site", *NAMES, "accuracy", "95 % interval"]
    assert of_sites.rows[-1][0] == "all sites"
    assert_leads(of_sites.rows[1][1:], cases["turin"])
    assert_leads(of_sites.rows[-1][1:], *cases.values())
    terminal = summary_table(configured(), led_by_rare_event(run).summary)
    assert [column.header for column in terminal.columns][2:] == [*LEADING, "accuracy", "loss"]


def test_a_comparison_is_by_auroc_and_begins_with_them_too(tmp_path):
    """There is no AUROC by round, so the loss is drawn."""
    compare = pytest.importorskip("fedbn_flower.study.compare")
    every = [two_sites((17, 16), seed, cases=200) for seed in range(2)]
    groups = compare.read_groups([write_cases(tmp_path / str(i), cases) for i, cases in enumerate(every)])
    found = compare.Compared.of(groups, common_metric(groups))
    names = [row[0] for row in found.beside["All metrics, pooled"].rows]
    assert names == [*NAMES, "accuracy", "loss"]
    areas = [row[1].removesuffix(" *") for row in found.table.rows]
    assert [f"{float(area):.3f}" for area in areas] == [expected(*cases.values())[0] for cases in every]
    assert "DeLong's test on the same 400 held-out cases" in found.table.note
    shown = Page(found.page()).text
    assert shown["h1"] == ["Comparison of 0 and 1"]
    assert shown["figcaption"] == ["Loss by round"]
    assert metric_by_round(found.groups, found.metric) == "loss"
    drawn = curves_figure(groups, "loss").axes[0].lines
    assert [line.get_ydata().tolist() for line in drawn] == [[2.0, 1.0]] * 2


def test_a_page_has_the_intervals_of_auroc_and_draws_them(tmp_path):
    cases = two_sites((4, 3))
    of_sites = {"lyon": {"auroc": [0.5, 0.75]}, "turin": {"auroc": [0.25, 1.0]}}
    found = {"pooled": {"auroc": [0.625, 0.875]}, "mean": {}, "clients": of_sites}
    shown = page(write_cases(tmp_path / "run", cases, summary=summary_of_cases(cases, intervals=found)))
    row = next(row for row in shown.rows if row[0] == "all clients' examples pooled")
    assert f"{expected(*cases.values())[0]} (0.625 to 0.875)" in row
    assert "AUROC by site" in shown.text["figcaption"]
    assert not any("still" in text for text in shown.text["p"])  # of the accuracy


@pytest.mark.parametrize(("events", "more"), [((7, 6), {}), ((0, 0), {}), ((4, 3), {"eval_data": "global"})])
def test_others_begin_with_the_main_metric(tmp_path, events, more):
    """Of 60 cases 13 are events, or none; or sites have the same cases."""
    run = Run.read(write_cases(tmp_path / "run", two_sites(events), **more))
    assert led_by_rare_event(run) is run
    assert metrics_table(run).header[-2:] == ["accuracy", "loss"]


def test_a_site_without_events_has_no_such_value_and_a_headline_of_ones_own_stays_first(tmp_path):
    cases = two_sites((4, 0))
    summary = summary_of_cases(cases, **{"compared-by": "f1"})
    led = led_by_rare_event(Run.read(write_cases(tmp_path / "run", cases, summary=summary))).summary
    assert [led.clients["1"][name] for name in LEADING] == [None] * 3
    assert main_first(led, "f1", ["loss", *LEADING, "f1"]) == ["f1", *LEADING, "loss"]
    area, sensitivity, calibration = LEADING
    assert main_first(led, sensitivity, LEADING) == [sensitivity, area, calibration]


def test_a_site_that_is_left_out_is_compared_by_what_the_run_has_of_it(tmp_path):
    cases = two_sites((4, 3))
    of_all = summary_of_cases(cases)
    new = {"clients": {"1": of_all["clients"]["1"]}, "mean": of_all["mean"]}
    left_out = of_all | {"new-clients": new, "new-clients-as-received": new}
    found = [
        led_by_rare_event(Run.read(write_cases(tmp_path / str(i), cases, summary=one))).main_metric
        for i, one in enumerate((of_all, left_out))
    ]
    assert found == ["auroc", "accuracy"]
