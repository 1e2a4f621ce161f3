"""Methods over sites, sites left out and data sets: Demšar's example, SciPy, and what a sweep writes."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedbn_flower.cli import main
from fedbn_flower.records.summary import Summary
from fedbn_flower.results.report.runs_by_seed import Sweep
from fedbn_flower.results.run_reader import Run
from fedbn_flower.study.comparisons.over_blocks import left_out_table, ranking
from fedbn_flower.study.figures import critical_difference_diagram, joined
from fedbn_flower.study.sweeps import rows as rows_of

from ...results.html_page import page
from ...results.test_metrics import summary
from ...results.written import add_run, csv_rows, summary_of, write_sweep
from ..statistics.test_paired import DEMSAR


def run_of(tmp_path, value=None, dataset="digits", sites=None, **config):
    """A run in memory, with one accuracy, or one of each site."""
    values = [value] if sites is None else list(sites)
    found = Summary.model_validate(summary(float(np.mean(values)), float(np.mean(values)), values))
    return Run(tmp_path, {"dataset": dataset, **config}, found, [])


def of_data_sets(tmp_path, methods):
    return [
        ({"strategy": name, "dataset": f"set {i}"}, [run_of(tmp_path, value, f"set {i}")])
        for name, values in methods.items()
        for i, value in enumerate(values)
    ]


def test_demsars_example_over_data_sets(tmp_path):
    """He finds ranks 3.143, 2.000, 2.893, 1.964, a difference by Friedman's test, and that Nemenyi's critical
    difference at 5 %, 1.25, is not powerful enough to say between which."""
    found = ranking(of_data_sets(tmp_path, DEMSAR), "accuracy")
    assert (found.what, found.title) == ("data sets", "accuracy over data sets")
    assert found.mean_ranks == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)
    assert set(found.best.alike) == set(DEMSAR)
    p_value = stats.friedmanchisquare(*DEMSAR.values()).pvalue
    words = (
        "Marked *: C4.5+m+cf, which has the best mean rank, and C4.5, C4.5+m and C4.5+cf, which cannot "
        "be told from it, over 14 data sets "
        f"(Friedman's test, p {p_value:.3f}; Nemenyi, critical difference 1.25, 5 %; the last column is "
        "Wilcoxon's test against the best)."
    )
    assert found.sentence == words
    table = found.table()
    assert [row[0] for row in table.rows] == ["C4.5+m+cf", "C4.5+m", "C4.5+cf", "C4.5"]
    assert [row[2] for row in table.rows] == ["1.96 *", "2.00 *", "2.89 *", "3.14 *"]
    names = list(DEMSAR)
    expected = {
        name: min(
            1, 6 * stats.wilcoxon(DEMSAR[name], DEMSAR[names[3]], zero_method="zsplit", method="auto").pvalue
        )
        for name in names[:3]
    }
    assert {row[0]: row[3] for row in table.rows[1:]} == {name: f"{p:.3f}" for name, p in expected.items()}


def test_without_a_difference_by_friedmans_test_none_is_told(tmp_path):
    values = np.random.default_rng(1).random((3, 8))
    found = ranking(of_data_sets(tmp_path, dict(zip("abc", values, strict=True))), "accuracy")
    assert stats.friedmanchisquare(*values).pvalue > 0.05
    assert set(found.best.alike) == set("abc")
    assert "Nemenyi" not in found.sentence


def test_two_methods_have_wilcoxons_test(tmp_path):
    first = np.arange(7) / 10
    methods = {"a": first + np.arange(1, 8) / 100, "b": first}
    found = ranking(of_data_sets(tmp_path, methods), "accuracy")
    assert found.best.behind["b"].p_value == pytest.approx(2 / 2**7)
    assert found.mean_ranks.tolist() == [1, 2]
    to_be_low = {"higher_is_better": ()}
    low = [
        (row, [replace(run, summary=run.summary.model_copy(update=to_be_low))])
        for row, (run,) in of_data_sets(tmp_path, methods)
    ]
    assert ranking(low, "accuracy").mean_ranks.tolist() == [2, 1]
    assert found.sentence == (
        "Marked *: a, which is best; b is worse, over 7 data sets (Wilcoxon's signed ranks, 5 %)."
    )


def test_of_a_few_data_sets_it_says_what_cannot_be_known(tmp_path):
    found = ranking(of_data_sets(tmp_path, {"a": [0.9] * 5, "b": [0.1] * 5}), "accuracy")
    assert found.of("a") == "unknown"
    words = "Methods cannot be told apart over 5 data sets: Wilcoxon's signed ranks need at least 6."
    assert found.table().note == words
    assert [row[1:] for row in found.table().rows] == [["90.0", "1.00", ""], ["10.0", "2.00", ""]]


EIGHT = {
    "fedavg": [0.9, 0.8, 0.7, 0.85, 0.75, 0.65, 0.95, 0.6],
    "fedadam": [0.6, 0.5, 0.4, 0.55, 0.45, 0.35, 0.65, 0.3],
    "fedyogi": [0.3, 0.2, 0.1, 0.25, 0.15, 0.05, 0.35, 0.0],
}
"""Accuracies at eight sites, each method 30 points behind the one before: ranks 1, 2 and 3."""


def rows_of_sites(tmp_path, values=EIGHT, seeds=2, **config):
    return [
        ({"strategy": name}, [run_of(tmp_path, sites=of, seed=seed, **config) for seed in range(seeds)])
        for name, of in values.items()
    ]


def test_sites_are_compared_by_the_means_over_seeds(tmp_path):
    found = ranking(rows_of_sites(tmp_path), "accuracy")
    assert (found.what, found.methods) == ("sites", tuple(EIGHT))
    assert found.mean_ranks.tolist() == [1, 2, 3]
    assert found.critical_difference == pytest.approx(2.343 * np.sqrt(3 * 4 / (6 * 8)), abs=1e-3)
    assert found.best.alike == ("fedavg", "fedadam")  # 1 apart, and the critical difference is 1.17
    assert found.sentence.endswith("Sites train together, so their values depend on each other.")


@pytest.mark.parametrize("config", [{"eval-data": "global"}, {"fold": 2}])
def test_sites_with_the_same_cases_and_folds_are_not_compared(tmp_path, config):
    assert ranking(rows_of_sites(tmp_path, **config), "accuracy") is None
    few = {name: values[:5] for name, values in EIGHT.items()}
    assert ranking(rows_of_sites(tmp_path, few), "accuracy") is None
    assert ranking(rows_of_sites(tmp_path)[:1], "accuracy") is None


def test_sites_of_other_partitions_are_other_sites(tmp_path):
    first, second, _ = rows_of_sites(tmp_path, partition="iid")
    (other,) = rows_of_sites(tmp_path, {"fedadam": EIGHT["fedadam"]}, partition="dirichlet:1")
    assert ranking([first, second], "accuracy") is not None
    assert ranking([first, other], "accuracy") is None


def test_sites_that_were_left_out_are_the_blocks(tmp_path):
    rows = []
    for name, values in EIGHT.items():
        for site, value in enumerate(values):
            new = {"mean": {"accuracy": value, "loss": 1.0}, "clients": {str(site): {"accuracy": value}}}
            found = summary(0.5, 0.5, [0.5]) | {"new-clients": new, "new-clients-as-received": new}
            config = {"dataset": "digits", "left-out": site}
            run = Run(tmp_path, config, Summary.model_validate(found), [])
            rows.append(({"strategy": name, "left-out": str(site)}, [run]))
    found = ranking(rows, "accuracy")
    assert (found.what, found.methods) == ("sites left out", tuple(EIGHT))
    assert found.mean_ranks.tolist() == [1, 2, 3]
    assert "depend on each other" not in found.sentence
    assert "no part in this" not in left_out_table(rows, "accuracy").note
    for _, (run,) in (row for row in rows if row[0]["left-out"] == "3"):
        run.summary.left_out.mean["accuracy"] = None
    table = left_out_table(rows, "accuracy")
    assert [row[1] for row in table.rows] == ["7"] * 3
    assert table.note.endswith("3 has no accuracy, and no part in this.")


def write_sites(folder):
    write_sweep(folder, {(name, "fedbn"): [np.mean(values)] for name, values in EIGHT.items()})
    for name, values in EIGHT.items():
        file = folder / f"{name}-fedbn-plain-seed0" / "summary.json"
        file.write_text(json.dumps(summary_of(values)))
    return folder


def test_the_report_and_compare_have_table_sentence_diagram_and_latex(tmp_path, capsys):
    folder = write_sites(tmp_path / "sweep")
    found = ranking(rows_of(Sweep.read(folder).groups), "accuracy")
    shown = page(folder)
    assert "Accuracy over sites" in shown.text["h2"]
    assert ["fedavg", "77.5", "1.00 *", ""] in shown.rows
    assert [text for text in shown.text["p"] if text == found.sentence]
    assert "Mean ranks, and which are not told apart" in shown.text["figcaption"]
    assert "critical difference 1.17" in (folder / "report.html").read_text()
    latex = "".join(shown.text["pre"])
    assert r"fedavg & 77.5 & 1.00 * &" in latex
    to = tmp_path / "to"
    assert main(["compare", str(folder), "--to", str(to)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert found.sentence.partition(", over")[2] in out
    assert "accuracy over sites" in out
    assert "## accuracy over sites" in (to / "compare.md").read_text()
    assert "1.00 *" in (to / "compare.md").read_text()
    assert "Accuracy over sites" in (to / "compare.html").read_text()
    assert (to / "ranks.png").exists()


def test_a_sweep_writes_it_when_it_ends(configured, tmp_path, sweeps_table):
    grid = sweeps_table(tmp_path)
    for name, values in EIGHT.items():
        found = summary(np.mean(values), np.mean(values), values)
        add_run(grid, configured(strategy=name, eval_data="local"), found)
    assert not grid.further_tables()
    grid.plot()
    (table,) = grid.further_tables().values()
    assert [row[0] for row in table.rows] == [*EIGHT]
    rows = {row["strategy"]: row for row in csv_rows(tmp_path / "grid.csv")}
    assert [*rows["fedavg"]][-2:] == ["mean rank", "cannot be told from the best mean rank"]
    assert [row["mean rank"] for row in rows.values()] == ["1.0", "2.0", "3.0"]
    assert [row["cannot be told from the best mean rank"] for row in rows.values()] == ["yes", "yes", "no"]
    text = (tmp_path / "grid.md").read_text()
    assert (
        "\nAccuracy over sites:\n\n| method | mean over sites | mean rank | p (Wilcoxon, Bonferroni) |"
        in text
    )
    assert f"\n{table.note}\n" in text
    assert (tmp_path / "ranks.png").exists()


def test_the_diagram_joins_what_is_not_told_apart():
    assert joined([1.0, 1.5, 2.4, 4.0], 1.0) == [(1.0, 1.5), (1.5, 2.4)]
    assert joined([1.0, 2.0, 2.5, 3.0], 1.5) == [(1.0, 2.5), (2.0, 3.0)]
    assert joined([1.0, 3.0], 1.0) == []
    figure = critical_difference_diagram(["a", "b$", "c", "d"], [4.0, 1.0, 1.5, 2.4], 1.0)
    (axes,) = figure.axes
    assert [text.get_text().strip() for text in axes.texts] == [
        r"b\$",
        "c",
        "d",
        "a",
        "critical difference 1.00",
    ]
    thick = [line.get_xdata() for line in axes.lines if line.get_linewidth() == 4]
    assert [tuple(np.round(ends, 2)) for ends in thick] == [(0.97, 1.53), (1.47, 2.43)]
