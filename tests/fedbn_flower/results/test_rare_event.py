"""Tables of a rare event begin with AUROC, sensitivity and calibration; scikit-learn is the reference."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from fedbn_flower.results.progress import summary_table
from fedbn_flower.results.rare_event import LEADING, led_by_rare_event, main_first
from fedbn_flower.results.report.results_table import results_table
from fedbn_flower.results.report.runs_by_seed import Group
from fedbn_flower.results.report.sections.client_tables import metrics_table
from fedbn_flower.results.run_reader import Run

from .written_cases import summary_of_cases, write_cases

NAMES = ["AUROC", "sensitivity at specificity 0.9", "expected over observed events"]


def two_sites(events, seed=0):
    """30 cases of each site, of which the first ones are events."""
    rng = np.random.default_rng(seed)
    found = {}
    for site, (name, count) in enumerate(zip(("lyon", "turin"), events, strict=True)):
        targets = (np.arange(30) < count).astype(np.int64)
        score = np.clip(rng.random(30) * 0.5 + 0.3 * targets, 0, 1)
        rows = np.arange(30) + 30 * site
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


def test_a_comparison_begins_with_them_too(tmp_path):
    side_by_side = pytest.importorskip("fedbn_flower.study.compare").side_by_side
    runs = [Run.read(write_cases(tmp_path / str(i), two_sites((4, 3), i))) for i in range(2)]
    table = side_by_side([Group({"folder": r.folder.name}, [r]) for r in runs], "accuracy")[
        "All metrics, pooled"
    ]
    assert [row[0] for row in table.rows] == [*NAMES, "accuracy", "loss"]


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
