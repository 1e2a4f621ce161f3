"""Methods of one seed, compared on the same held-out cases: the same marks and numbers in every table."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel
from sklearn.metrics import roc_auc_score

from clients.problems.metrics.scores import thresholds
from fedbn_flower import Result, UserError
from fedbn_flower.cli import main
from fedbn_flower.records.cases import predictions_of
from fedbn_flower.records.summary import Summary
from fedbn_flower.results.report.runs_by_seed import Group, Sweep, metrics_table
from fedbn_flower.results.run_reader import Run
from fedbn_flower.study.compare import Compared, read_groups, side_by_side
from fedbn_flower.study.comparisons.best_cells import cases_of, difference_of
from fedbn_flower.study.statistics.paired import delong_test, score_test
from fedbn_flower.study.sweeps import best_groups

from ...results.html_page import page
from ...results.written import add_run, csv_rows, summary_of, write_run
from ...results.written_cases import (
    accuracy,
    drawn,
    right_of,
    summary_of_cases,
    write_cases,
    write_sweep_of_cases,
)

METHODS = drawn({"fedavg": 2.0, "fedadam": 1.9, "fedyogi": 0.0})


def test_a_difference_of_two_aurocs_has_delongs_interval(tmp_path):
    names = ("fedavg", "fedyogi")
    runs = [Run.read(write_cases(tmp_path / n, METHODS[n], strategy=n, thresholds=1000)) for n in names]
    every = [np.concatenate([c["scores"][:, 1] for c in METHODS[n].values()]) for n in names]
    targets = np.concatenate([c["targets"] for c in METHODS["fedavg"].values()])
    both = [np.searchsorted(thresholds(1000).numpy(), scores, "right") for scores in every]
    values = tuple(roc_auc_score(targets, scores) for scores in both)
    assert difference_of(*runs, "auroc", values) == pytest.approx(delong_test(targets, *both[::-1]))
    assert difference_of(*runs, "accuracy", (0.1, 0.2)) is None  # not what the cases give


def test_two_runs_have_their_sites_and_metrics_side_by_side(tmp_path):
    of_two = {name: METHODS[name] for name in ("fedavg", "fedyogi")}
    for name, cases in of_two.items():
        write_cases(tmp_path / name, cases, strategy=name)
    groups = read_groups([tmp_path / name for name in of_two])
    by_site, every = side_by_side(groups, "accuracy").values()
    assert by_site.header == ["site", "fedavg", "fedyogi"]
    assert by_site.rows[:2] == [
        [site, *(f"{100 * accuracy({site: of[site]}):.1f} %" for of in of_two.values())]
        for site in ("lyon", "turin")
    ]
    assert every.header == ["metric", "fedavg", "fedyogi", "fedyogi less fedavg"]
    whole = {name: 100 * accuracy(cases) for name, cases in of_two.items()}
    row = next(row for row in every.rows if row[0] == "accuracy")
    assert row[1:3] == [f"{value:.1f} %" for value in whole.values()]
    assert row[3].startswith(f"{whole['fedyogi'] - whole['fedavg']:+.1f} points (")
    assert side_by_side(groups[:1], "accuracy") == {}


def test_python_compares_two_runs_as_the_command_does(tmp_path, monkeypatch):
    first, second = (
        Result(write_cases(tmp_path / name, METHODS[name], strategy=name)) for name in ("fedavg", "fedyogi")
    )
    found = first.compare(second)
    assert list(found.columns) == ["this", "other", "difference", "low", "high", "p"]
    assert found.index[0] == "accuracy"
    row = found.loc["accuracy"]
    assert row[["this", "other"]].tolist() == [accuracy(METHODS[name]) for name in ("fedavg", "fedyogi")]
    right = [right_of(METHODS[name]) for name in ("fedyogi", "fedavg")]
    assert row[["difference", "low", "high", "p"]].tolist() == pytest.approx(list(score_test(*right)))
    _, every = side_by_side(read_groups([first.folder, second.folder]), "accuracy").values()
    difference, low, high = 100 * row[["difference", "low", "high"]]
    told = next(line[-1] for line in every.rows if line[0] == "accuracy")
    assert told == f"{difference:+.1f} points ({low:+.1f} to {high:+.1f})"
    assert first.compare(str(second.folder)).equals(found)
    with pytest.raises(UserError, match="^compare: .*none"):
        first.compare(tmp_path / "none")
    other = write_cases(tmp_path / "other", METHODS["fedavg"], dataset="other", data="b")
    with pytest.raises(UserError, match="^compare: The runs use different data"):
        first.compare(other)
    monkeypatch.setattr("fedbn_flower.annexes.is_present", lambda name: name != "study")
    with pytest.raises(UserError, match="^compare: .* are in fedbn_flower/study, which is not there$"):
        first.compare(second)


def test_it_is_said_of_how_many_cases_hd95_is_undefined(tmp_path):
    for name, of_lyon in (("fedavg", 3), ("fedyogi", 0)):
        by_case = {
            "unit": "mm", "tolerance": 1.0, "cases": {"lyon": 100, "turin": 100},
            "left-out": {"lyon": {"hd95": of_lyon}, "turin": {"hd95": 2}},
            "pooled": {"hd95": 4.0, "case-dice": 0.8}, "mean": {"hd95": 4.0, "case-dice": 0.8},
            "clients": {site: {"hd95": 4.0, "case-dice": 0.8} for site in ("lyon", "turin")},
        }  # fmt: skip
        more = {"by-case": by_case, "pooled": {"accuracy": 0.9}}
        write_cases(tmp_path / name, METHODS[name], summary=summary_of_cases(METHODS[name], **more))
    tables = side_by_side(read_groups([tmp_path / "fedavg", tmp_path / "fedyogi"]), "accuracy")
    assert tables["Dice by case by site"].rows[0] == ["lyon", "0.800", "0.800"]
    assert tables["All metrics, pooled"].note.endswith(
        "HD95 leaves out cases in which a mask is empty: fedavg 5, fedyogi 2."
    )


def test_of_runs_on_different_data_no_cases_are_shown(tmp_path):
    for data, shows in (("same", True), ("", False)):
        names = [f"{data}{i}" for i in range(2)]
        folders = [write_cases(tmp_path / name, METHODS["fedavg"], data=data or name) for name in names]
        assert bool(Compared.of(read_groups(folders), "accuracy").held_out) == shows


def test_marks_and_numbers_are_the_same_in_every_table(configured, tmp_path, capsys, sweeps_table):
    grid = sweeps_table(tmp_path)
    for strategy, cases in METHODS.items():
        folder = f"{strategy}-run"
        write_cases(tmp_path / folder, cases, strategy=strategy)
        grid.add(configured(strategy=strategy), Summary.model_validate(summary_of_cases(cases)), name=folder)
    assert grid.sentence.startswith("Which is best cannot be known from only 1 seed")  # some still run
    grid.plot()
    right = [*map(right_of, METHODS.values())]
    means = [r.mean() for r in right]
    best = int(np.argmax(means))
    other = 1 - best
    found = {i: score_test(right[i], right[best], 1 - 0.05 / 3) for i in (other, 2)}
    p = {i: min(1, 3 * of.p_value) for i, of in found.items()}
    assert p[2] < 0.001 < 0.05 < p[other]
    name = list(METHODS)[best]
    numbers = {i: (100 * (means[i] - means[best]), 100 * of.low, 100 * of.high) for i, of in found.items()}
    less = {i: "{:+.1f} points, 95 % {:+.1f} to {:+.1f}".format(*of) for i, of in numbers.items()}
    words = (
        f"Marked *: {name}, which has the best value, and {list(METHODS)[other]} ({less[other]}), which "
        f"cannot be told from it; {list(METHODS)[2]} ({less[2]}) is worse (McNemar's test on the same 200 "
        "held-out cases, Bonferroni for all pairs, 5 %). The 95 % intervals of differences hold for all "
        "pairs together. One seed says nothing of how training varies."
    )
    assert grid.sentence == words
    rows = {row["strategy"]: row for row in csv_rows(tmp_path / "grid.csv")}
    assert [row["cannot be told from the best"] for row in rows.values()] == ["yes", "yes", "no"]
    assert float(rows[list(METHODS)[other]]["p (Bonferroni)"]) == pytest.approx(p[other])
    markdown = (tmp_path / "grid.md").read_text()
    numbers = [
        ["{:+.1f} ({:+.1f} to {:+.1f})".format(*(100 * end for end in found[i][:3])), words]
        for i, words in ((other, f"{p[other]:.3f}"), (2, "< 0.001"))
    ]
    shown = page(tmp_path)
    for i, (difference, p_value) in zip((other, 2), numbers, strict=True):
        mark = "" if i == 2 else " *"
        cell = f"{100 * means[i]:.1f}{mark}"
        (line,) = [line for line in markdown.splitlines() if line.startswith(f"| {list(METHODS)[i]} ")]
        assert f"| {cell} |" in line
        assert line.endswith(f"| {difference} | {p_value} |")
        (row,) = [row for row in shown.rows if row[0] == list(METHODS)[i] and len(row) > 4]
        assert row[1:4] == [cell, difference, p_value]
        latex = p_value.replace("<", r"\textless{}")
        assert rf"& {difference} & {latex} &" in "".join(shown.text["pre"])
    assert words in markdown
    assert [text for text in shown.text["p"] if words in text]
    to = tmp_path / "to"
    assert main(["compare", str(tmp_path), "--to", str(to)]) == 0
    out = capsys.readouterr().out
    for method in METHODS:  # there rows are named by their folder, too
        words = words.replace(method, f"{tmp_path.name} {method}")
    assert words in " ".join(out.split())
    assert words in (to / "compare.md").read_text()
    assert f"| {numbers[0][0]} | {numbers[0][1]} |" in (to / "compare.md").read_text()
    assert p_value in (to / "compare.html").read_text().replace("&lt;", "<")
    assert numbers[0][1] in out


def test_an_auroc_has_delongs_test(tmp_path):
    """Of 1,000 thresholds, as the runs'; the table's scores are finer."""
    sweep = write_sweep_of_cases(tmp_path / "s", METHODS, thresholds=1000)
    for run in Sweep.read(sweep).runs:
        cases = cases_of(run)
        bins = np.searchsorted(thresholds(1000).numpy(), cases.score, "right")
        value = delong_test(cases.target, bins, cases.target * 0).difference + 0.5
        more = {"pooled": {"auroc": value, "accuracy": 0.5, "loss": 1.0}, "compared-by": "auroc"}
        text = Summary.model_validate(
            run.summary.as_json() | more | {"higher-is-better": ["auroc"]}
        ).model_dump_json(by_alias=True, exclude_unset=True)
        (run.folder / "summary.json").write_text(text)
    told = best_groups(Sweep.read(sweep).groups, "auroc")
    assert "(DeLong's test on the same 200 held-out cases, Bonferroni for all pairs, 5 %)" in told.sentence
    assert told.column == "pooled"


def test_cases_in_groups_have_the_bootstrap(tmp_path):
    sweep = Sweep.read(write_sweep_of_cases(tmp_path / "s", METHODS, groups=np.arange(200) // 2))
    told = best_groups(sweep.groups, "accuracy")
    assert "(paired bootstrap over groups within sites on the same 200 held-out cases" in told.sentence
    assert told.of(2) == "no"


def test_where_clients_have_the_same_cases_an_example_is_a_group(tmp_path):
    one = drawn({"a": 1.0}, cases=60, sites=("x",))["a"]["x"]
    folder = write_cases(tmp_path / "run", {"lyon": one, "turin": one})
    found = cases_of(Run.read(folder))
    assert set(found.site) == {"all"}
    assert found.id.is_unique
    assert found.groupby("group").size().tolist() == [2] * 60
    assert len(found) == len(predictions_of(folder)) == 120


def test_it_says_why_single_runs_are_not_compared(tmp_path, monkeypatch):
    swept = write_sweep_of_cases(tmp_path / "sweep", METHODS)
    file = swept / "fedyogi-fedbn-plain-seed0" / "predictions.parquet"
    table = pd.read_parquet(file)
    few = "Which is best cannot be known from only 1 seed; at least 5 are needed. Nor from the cases:"
    changes = {
        "not all runs have the same held-out cases": table.assign(id=table.id + 1).to_parquet,
        "the predictions do not give the runs' accuracy": table.assign(score=1 - table.score).to_parquet,
        "not all runs keep predictions of a single target": Path.unlink,
    }
    for why, change in changes.items():
        change(file)
        told = best_groups(Sweep.read(swept).groups, "accuracy")
        assert not told.known
        assert told.sentence.startswith(f"{few} {why}. ")
    table.to_parquet(file)
    monkeypatch.setattr("fedbn_flower.study.comparisons.best_cells.MOST", 599)
    told = best_groups(Sweep.read(swept).groups, "accuracy")
    assert told.sentence.startswith(f"{few} the rows and cases are too many. ")


def test_with_few_events_cases_say_nothing_either(tmp_path):
    methods = drawn({"fedavg": 9.0, "fedyogi": 0.0}, cases=60)
    told = best_groups(Sweep.read(write_sweep_of_cases(tmp_path / "s", methods)).groups, "accuracy")
    beginning = (
        r"Which is best cannot be known from only \d\d held-out cases outside the most frequent class; "
        r"at least 30 are needed\. The"
    )
    assert re.match(beginning, told.sentence)
    assert (
        "difference from the best"
        not in metrics_table(Sweep.read(tmp_path / "s").groups, "accuracy", told=told).header
    )


def test_folds_are_not_compared_with_each_other(configured, tmp_path, sweeps_table):
    grid = sweeps_table(tmp_path, ["fold"])
    grid.verdicts.add = lambda *_: None
    for fold in (1, 2):
        found = summary_of_cases(METHODS["fedavg"])
        add_run(grid, configured(folds=2, fold=fold), found)
    assert grid.sentence == "Folds are not compared with each other: each is tested on other cases."


def test_runs_without_different_sites_are_not_compared_with_each_other(configured, tmp_path, sweeps_table):
    grid = sweeps_table(tmp_path, ["left-out"])
    for site in (0, 1):
        found = summary_of_cases(METHODS["fedavg"]) | {"new-clients": {"clients": {str(site): {}}}}
        add_run(grid, configured(leave_one_site_out=True, left_out=site), found)
    words = "Runs that leave out different sites are not compared with each other, but over these sites."
    assert grid.sentence == words


def test_runs_that_hold_out_other_cases_of_the_same_data_are_not_compared(tmp_path):
    groups = []
    for column, data in (("", "a"), ("patient", "b")):
        keys = {"group_column": column, "data": data}
        folders = [write_run(tmp_path / f"{column}{i}", summary_of([0.5]), seed=i, **keys) for i in (0, 1)]
        groups.append(Group({"group-column": column}, [Run.read(folder) for folder in folders]))
    assert [group.label for group in groups] == ["no group-column", "group-column=patient"]
    words = (
        "Runs that differ in group-column are not compared with each other: each is tested on other cases."
    )
    assert best_groups(groups, "accuracy").sentence == words


@pytest.mark.parametrize("key", ["group_column", "dp_unit"])
def test_with_a_test_set_of_their_own_they_are_compared(tmp_path, key):
    """Units are part of what the digest is of."""
    groups = []
    for value, name in (("", "fedavg"), ("patient", "fedyogi")):
        keys = {key: value, "data": f"digest {value}"}
        groups.append(Group({key: value}, [Run.read(write_cases(tmp_path / name, METHODS[name], **keys))]))
    assert best_groups(groups, "accuracy").sentence.startswith(f"Marked *: {groups[0].label}, which is best")


def test_a_run_of_one_seed_beside_others_of_five_is_not_tested_and_changes_no_test(tmp_path):
    """That of the two others is one pair's."""
    values = {"fedavg": [0.5, 0.52, 0.51, 0.55, 0.53], "fedyogi": [0.7, 0.71, 0.75, 0.7, 0.76], "once": [0.1]}
    groups = []
    for name, of in values.items():
        folders = [write_run(tmp_path / f"{name}{i}", summary_of([v]), seed=i) for i, v in enumerate(of)]
        groups.append(Group({"strategy": name}, [Run.read(folder) for folder in folders]))
    told = best_groups(groups, "accuracy")
    interval = ttest_rel(values["fedavg"], values["fedyogi"]).confidence_interval()
    assert told.differences.keys() == {0}
    assert told.differences[0][1:3] == pytest.approx((interval.low, interval.high))
    assert [told.of(i) for i in range(3)] == ["no", "yes", "unknown"]
    assert told.alike == {1}
    assert told.sentence.startswith("Marked *: fedyogi, which is best; fedavg (")
    assert told.sentence.endswith("together. Not tested, with fewer than 5 seeds: once.")
    assert best_groups(groups[:2], "accuracy").differences == told.differences
