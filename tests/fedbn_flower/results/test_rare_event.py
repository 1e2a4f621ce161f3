"""Tables of a rare event begin with AUROC, sensitivity and calibration; scikit-learn is the reference."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, roc_auc_score, roc_curve

from fedbn_flower import cli
from fedbn_flower.records.cases import predictions_file, predictions_of
from fedbn_flower.results.progress import summary_table
from fedbn_flower.results.rare_event import (
    LEADING,
    Candidate,
    led_by_rare_event,
    led_together,
    main_first,
    why_by_accuracy,
)
from fedbn_flower.results.report.results_table import results_table
from fedbn_flower.results.report.runs_by_seed import common_metric
from fedbn_flower.results.report.sections.client_tables import metrics_table
from fedbn_flower.results.report.sections.results import run_figures
from fedbn_flower.results.report.sweep_page import curves_figure, metric_by_round
from fedbn_flower.results.run_reader import Run

from .html_page import Page, page
from .written import change_run, summary_of, write_run
from .written_cases import columns, summary_of_cases, write_cases

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
    (tmp_path / "0/predictions.parquet").unlink()
    groups = compare.read_groups([tmp_path / "0", tmp_path / "1"])
    found = compare.Compared.of(groups, common_metric(groups))
    assert found.metric == "accuracy"
    assert "(cases are not kept in 1 of 2 runs)" in found.table.note


def test_a_page_has_the_intervals_of_auroc_and_draws_them(tmp_path):
    cases = two_sites((4, 3))
    of_sites = {"lyon": {"auroc": [0.5, 0.75]}, "turin": {"auroc": [0.25, 1.0]}}
    found = {"pooled": {"auroc": [0.625, 0.875]}, "mean": {}, "clients": of_sites}
    shown = page(write_cases(tmp_path / "run", cases, summary=summary_of_cases(cases, intervals=found)))
    row = next(row for row in shown.rows if row[0] == "all clients' examples pooled")
    assert f"{expected(*cases.values())[0]} (0.625 to 0.875)" in row
    assert "AUROC by site" in shown.text["figcaption"]
    assert not any("still" in text for text in shown.text["p"])  # of the accuracy


def test_its_figures_by_round_begin_with_the_loss_as_no_round_has_an_auroc(tmp_path):
    rare, other = (Run.read(write_cases(tmp_path / str(n), two_sites((n, n)))) for n in (4, 7))
    for run, (first, second) in ((rare, ("Loss", "Accuracy")), (other, ("Accuracy", "Loss"))):
        figures = run_figures(run)
        assert list(figures)[:2] == [f"{first} by round", f"{second} by round"]
        of_lyon = figures[f"{first} of each client"].axes[0].lines[-1].get_ydata()
        assert of_lyon.tolist() == ([2.0, 1.0] if run is rare else [20.0, 70.0])


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
    left_out = of_all | {"new-clients": new, "new-clients-as-received": new, "eval-data": "local"}
    found = [
        led_by_rare_event(Run.read(write_cases(tmp_path / str(i), cases, summary=one))).main_metric
        for i, one in enumerate((of_all, left_out))
    ]
    assert found == ["auroc", "accuracy"]
    change_run(tmp_path / "1", {"num-clients": 3, "holdout-clients": 1})
    seen = page(tmp_path / "1").text
    assert " trained on digits by 2 of 3 clients with " in seen["h1"][0]
    assert seen["p"][0].startswith("2 of 3 clients trained ")
    assert seen["p"][0].endswith(" turin was left out, and tested on at the end.")
    assert (seen["dt"][0], seen["dd"][0]) == (
        "accuracy, turin, left out",
        f"{100 * new['mean']['accuracy']:.1f} %",
    )
    said = "its own held-out examples; the site left out is evaluated on all of its examples, none of"
    assert any(said in text for text in seen["p"])


def test_a_site_left_out_is_led_by_the_rare_event_of_its_own_cases(tmp_path):
    cases = two_sites((4, 3))
    lyon, turin = ({name: cases[name]} for name in cases)
    of_all = summary_of_cases(cases)
    new = {"clients": {"1": of_all["clients"].pop("1")}, "mean": of_all["mean"]}
    summary = of_all | {"new-clients": new, "new-clients-as-received": new, "eval-data": "local"}
    folder = write_cases(tmp_path / "run", lyon, summary=summary, client_names=list(cases), num_clients=2)
    kept = predictions_file((lyon, columns()), (turin, replace(columns(), new=True)))
    (folder / "predictions.parquet").write_bytes(kept)
    row = results_table(Run.read(folder)).rows[-1]
    assert row[0] == "turin, not trained on"
    assert_leads(row[1:], cases["turin"])
    shown = page(folder)
    assert shown.text["dt"][:4] == [f"{name}, turin, left out" for name in (*NAMES, "accuracy")]
    assert_leads(shown.text["dd"], cases["turin"])
    row = next(row for row in shown.rows if row[0] == "client turin")
    assert_leads(row[2:], cases["turin"])


def deaths():
    """Two sites, of whose 1,000 patients 40 died: those with the greatest risk."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(1000, 2))
    risk = x[:, 0] + rng.normal(size=1000)
    died = (risk >= np.sort(risk)[-40]).astype(int)
    return pd.DataFrame({"site": np.repeat(["lyon", "turin"], 500), "x": x[:, 0], "y": x[:, 1], "died": died})


def by_accuracy(share, lacking, run="Not every run"):
    return (
        f"The event is rare ({100 * share:.1f} % of held-out cases): accuracy says little of it. "
        f"{run} has an AUROC of all cases ({lacking}); with --metrics auroc they are compared by AUROC."
    )


@pytest.fixture
def swept(tmp_path, monkeypatch, capsys):
    """Runs a sweep over the deaths, in this process; returns what it printed, and ``grid.md``."""
    pytest.importorskip("fedbn_flower.sweeps")
    monkeypatch.chdir(tmp_path)
    deaths().to_csv("deaths.csv", index=False)
    keys = "--dataset deaths.csv --label-column died --partition natural:site --num-clients 2 --model linear"

    def run(words):
        status = cli.main(
            [*f"{words} {keys} --rounds 1 --backend inline --strategy fedavg --client shared".split()]
        )
        assert status == 0
        return capsys.readouterr().out, (tmp_path / "g" / "grid.md").read_text()

    return run


def grid_rows():
    return pd.read_csv("g/grid.csv").set_index("folder")


def test_a_sweep_in_which_only_some_runs_have_an_auroc_is_compared_by_accuracy_and_says_so(swept, tmp_path):
    printed, written = swept("--sweep eval-data=local,global --run-dir g")
    found = grid_rows()
    for name, row in found.iterrows():
        cases = predictions_of(tmp_path / "g" / name)
        accuracy = accuracy_score(cases["target"], cases["score"] > 0.5)
        assert row["accuracy: mean over examples"] == pytest.approx(accuracy)
    assert len(found) == 2
    assert not [column for column in found if column.startswith("auroc")]
    share = predictions_of(tmp_path / "g" / found.index[0])["target"].mean()
    words = by_accuracy(share, "sites have the same cases in 1 of 2 runs")
    assert words in printed
    assert words in written
    assert any(words in text for text in page(tmp_path / "g").text["p"])


@pytest.mark.slow
def test_with_auroc_as_metric_all_are_compared_by_it(swept, tmp_path):
    """As the sentence says; where sites have the same cases, the server's AUROC is that of all of them."""
    _, written = swept("--sweep eval-data=local,global --metrics auroc --run-dir g")
    assert "is rare" not in written
    local, shared = (of for _, of in grid_rows().sort_values("eval-data", ascending=False).iterrows())
    cases = predictions_of(tmp_path / "g" / local.name)
    assert local["auroc: pooled"] == pytest.approx(roc_auc_score(cases["target"], cases["score"]))
    cases = predictions_of(tmp_path / "g" / shared.name)
    of_lyon = cases[cases["site"] == "lyon"]
    area = roc_auc_score(of_lyon["target"], of_lyon["score"])
    assert shared["auroc: client lyon"] == pytest.approx(area)
    alone = Run.read(tmp_path / "g" / shared.name)
    assert Candidate.of(alone).led is alone  # in figures of all cases each would count once for each site


def test_out_of_fold_a_rare_event_has_an_auroc_of_all_folds_by_which_it_is_compared(swept, tmp_path):
    pytest.importorskip("fedbn_flower.study")
    _, written = swept("--folds 2 --reference none,alone --eval-data local --run-dir g")
    folds = pd.read_csv("g/folds.csv").set_index(["reference", "of"])
    for name in ("none", "alone"):
        rows = [row for row in grid_rows().itertuples() if row.reference == name]
        cases = pd.concat([predictions_of(tmp_path / "g" / row.Index) for row in rows])
        assert len(cases) == 1000
        for of, some in (("pooled", cases), ("client lyon", cases[cases["site"] == "lyon"])):
            area = roc_auc_score(some["target"], some["score"])
            row = folds.loc[name, of]
            assert row["auroc"] == pytest.approx(area)
            assert row["auroc low"] < area < row["auroc high"]
            calibration = some["score"].sum() / some["target"].sum()
            assert row["expected-over-observed"] == pytest.approx(calibration)
    assert "| of | examples | events (class 1) | AUROC |" in written
    (row,) = (row for row in page(tmp_path / "g").rows if row[3:5] == ["alone", "0"] and row[5] == "pooled")
    assert row[-1].startswith(f"{folds.loc['alone', 'pooled']['auroc']:.4g} (")


def test_runs_of_the_same_data_are_led_together_or_not_at_all(tmp_path):
    """A seed by which 12 of 60 held-out cases are events, not rare, goes with one by which 11 are."""

    def candidates(*events, **more):
        folders = [
            write_cases(tmp_path / f"{one}-{i}", two_sites(one), seed=i, **more)
            for i, one in enumerate(events)
        ]
        return [Candidate.of(Run.read(folder)) for folder in folders]

    few, many = candidates((6, 5), (6, 6))
    assert [run.main_metric for run in led_together([many])] == ["accuracy"]
    led = led_together([few, many])
    assert [run.main_metric for run in led] == ["auroc", "auroc"]
    for run, events in zip(led, ((6, 5), (6, 6)), strict=True):
        assert f"{run.summary.pooled['auroc']:.3f}" == expected(*two_sites(events).values())[0]
    assert why_by_accuracy(run.run for run in (few, many)) == ""  # it was asked for
    (without,) = candidates((3, 3))
    (without.run.folder / "predictions.parquet").unlink()
    without = Candidate.of(without.run)
    assert led_together([few, without, many]) == [one.run for one in (few, without, many)]
    (other,) = candidates((1, 1), dataset="other.csv")
    assert [run.main_metric for run in led_together([few, without, other])] == ["accuracy"] * 2 + ["auroc"]
    words = by_accuracy(11 / 60, "cases are not kept in 1 of 2 runs")
    assert why_by_accuracy(one.run for one in (few, without)) == words
    shared = [one.run for one in candidates((4, 3), (3, 4), eval_data="global")]
    words = by_accuracy(7 / 60, "sites have the same cases in 2 of 2 runs", "No run")
    assert why_by_accuracy(shared) == words
    asked = summary_of([0.5])
    asked["compared-by"] = "auroc"
    private = Candidate.of(Run.read(write_run(tmp_path / "private", asked, dataset=few.data[0])))
    assert [run.main_metric for run in led_together([few, private])] == ["auroc", "auroc"]
