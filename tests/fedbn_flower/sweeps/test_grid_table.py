"""Further columns of a sweep's table: many clients, clients held out, rounds to a target."""

import numpy as np
import pytest
from scipy.stats import ttest_rel
from sklearn.metrics import roc_auc_score

from fedbn_flower.records.summary import Summary
from fedbn_flower.results import report
from fedbn_flower.results.report.runs_by_seed import Sweep, common_metric
from fedbn_flower.results.report.sweep_page import curves
from fedbn_flower.sweeps.grid_table import Comparison
from fedbn_flower.sweeps.sweep import end_line

from ..results.test_metrics import shown, summary
from ..results.written import add_run, csv_rows
from ..results.written_cases import summary_of_cases, write_cases

WRITE_REPORT = report.write_report  # without the other tests' stand-in


def table(folder):
    lines = (folder / "grid.md").read_text().split("\n\n")[0].splitlines()
    header, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_of_many_clients_the_worst_tenth_is_reported(configured, tmp_path):
    grid = Comparison(tmp_path)
    for seed, worst in enumerate((0.1, 0.3)):
        many = summary(0.5, 0.5, [0.5] * 20) | {"worst-tenth": {"accuracy": worst, "loss": 1.0}}
        new = {"accuracy": 0.25, "loss": 1.0}
        many["new-clients"] = {"mean": new, "clients": {"20": new}}
        add_run(grid, configured(seed=seed), many)
    (row,) = table(tmp_path)
    assert row["worst tenth"] == "20.0 +- 14.1"
    assert row["new clients"] == "25.0 +- 0.0"
    assert not [name for name in row if name.startswith(("client ", "new client "))]


def test_clients_held_out_have_columns_by_number(configured, tmp_path):
    grid = Comparison(tmp_path)
    figures = {i: {"accuracy": i / 10, "loss": 1.0} for i in range(3)}
    for seed in (2, 0):
        run = summary(0.5, 0.5, [])
        run["clients"] = {str(i): figures[i] for i in figures if i != seed}
        run["new-clients"] = {"mean": figures[seed], "clients": {str(seed): figures[seed]}}
        add_run(grid, configured(seed=seed), run)
    (row,) = table(tmp_path)
    names = [f"client {i}" for i in range(3)] + ["new clients"] + [f"new client {i}" for i in (0, 2)]
    assert list(row)[-6:] == names
    output = ["0.0 (1 of 2)", "10.0 +- 0.0", "20.0 (1 of 2)", "10.0 +- 14.1", "0.0 (1 of 2)", "20.0 (1 of 2)"]
    assert list(row.values())[-6:] == output


def test_clients_without_the_metric_are_named_beside_the_mean_over_the_others(configured, tmp_path):
    grid = Comparison(tmp_path)
    for seed in (0, 1):
        found = summary(0.5, 0.5, [0.4, 0.6, 0.1])
        del found["clients"]["2"]["accuracy"]
        add_run(grid, configured(seed=seed), found)
    said = "no accuracy of client 2, so what is over clients is over the others"
    written = (tmp_path / "grid.md").read_text()
    assert said in written
    assert "mean over clients: every client that has a value." in written
    WRITE_REPORT(tmp_path)
    assert f"N{said[1:]}." in (tmp_path / "report.html").read_text()
    add_run(grid, configured(seed=2), summary(0.5, 0.5, [0.4, 0.6, 0.1]))
    assert said.replace("2,", "2 in some runs,") in (tmp_path / "grid.md").read_text()


def test_runs_that_learn_different_things_have_columns_and_a_title_of_both(configured, tmp_path):
    grid = Comparison(tmp_path, ["dataset"])
    add_run(grid, configured(dataset="digits"), summary(0.5, 0.5, []))
    losses = summary(0.5, 0.5, []) | {"compared-by": "loss"}
    losses |= {"mean": {"loss": 3.0}, "client-mean": {"loss": 2.71828e-7}}
    add_run(grid, configured(dataset="quadratic:3", client="shared"), losses)
    first, second = table(tmp_path)
    assert (first["accuracy: mean over examples"], first["loss: mean over examples"]) == ("50.0", "")
    assert second["loss: mean over examples"] == "3"
    assert second["loss: mean over clients"] == "2.718e-07"
    assert "\nAccuracy in %, loss.\n" in (tmp_path / "grid.md").read_text()


def test_rounds_to_a_target_are_of_the_seeds_that_reached_it(configured, tmp_path):
    grid = Comparison(tmp_path)
    for seed, reached in enumerate((10, 13, None)):
        run = summary(0.5, 0.5, [0.5, 0.5], 0.75)
        run["rounds-to-target"] = {"target": 0.9, "mean": None, "global": reached}
        costs = reached and {"bytes": reached * 10**6, "simulated-seconds": reached / 2}
        run["costs-to-target"] = {"mean": None, "global": costs}
        add_run(grid, configured(seed=seed), run)
    grid.add(configured(seed=3), None, "it diverged")  # it does not count among those that did not
    (row,) = table(tmp_path)
    assert row["failed"] == "seed 3: it diverged"
    assert row["MB to 0.9: global"] == "11.5 +- 2.1 (2 of 3)"
    assert row["simulated seconds to 0.9: global"] == "5.8 +- 1.1 (2 of 3)"
    assert row["rounds to 0.9: global"] == "11.5 +- 2.1 (2 of 3)"
    assert "rounds to 0.9: mean over examples" not in row
    assert row["global"] == "75.0 +- 0.0"
    rows = csv_rows(tmp_path / "grid.csv")
    assert [r["rounds to 0.9: global"] for r in rows] == ["10", "13", "", ""]


def test_the_terminal_says_once_what_all_runs_are(configured, tmp_path):
    grid = Comparison(tmp_path, ["server-lr"])
    for rate in (0.1, 0.2):
        add_run(grid, configured(server_lr=rate), summary(0.5, 0.5, []))
    text = shown(grid)
    assert "fedyogi fedbn plain: accuracy in %" in text
    assert text.count("fedyogi") == 1
    assert "0.1" in text
    assert "0.2" in text
    add_run(grid, configured(strategy="fedadam"), summary(0.5, 0.5, []))
    assert "fedbn plain: accuracy in %" in shown(grid)
    assert shown(grid).count("fedyogi") == 2


def test_a_sweep_in_which_nothing_has_ended_has_its_files(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "write_report", WRITE_REPORT)
    Comparison(tmp_path, ["server-lr"]).plot()
    assert (tmp_path / "grid.csv").read_text().startswith("strategy,client,objective,server-lr,seed,status")
    assert {path.name for path in tmp_path.iterdir()} == {"grid.csv", "grid.md", "grid.png", "report.html"}


# ---- which cells cannot be told from the best ---------------------------------------------------------

ACCURACIES = {
    "fedavg": (0.80, 0.81, 0.79, 0.82, 0.78),
    "fedadam": (0.81, 0.80, 0.80, 0.81, 0.79),
    "fedyogi": (0.50, 0.51, 0.49, 0.52, 0.48),
}
"""By seed: the first two have means of 80 and 80.2 %, the third is 30 points behind the first each time."""
TOLD = "cannot be told from the best"


def compared(configured, folder, seeds=5, keys=(), **more):
    grid = Comparison(folder, keys)
    for strategy, values in ACCURACIES.items():
        for seed, accuracy in enumerate(values[:seeds]):
            found = summary(accuracy, accuracy, [accuracy]) | more
            add_run(grid, configured(strategy=strategy, seed=seed), found)
    return grid


def told(folder):
    rows = csv_rows(folder / "grid.csv")
    return {row["strategy"]: row[TOLD] for row in rows}


def behind(row):
    """What the sentence says of a row's difference, which is what the table has to the digit."""
    return row["difference from the best"].replace(" (", " points, 95 % ").removesuffix(")")


def test_cells_that_cannot_be_told_from_the_best_are_marked_by_scipys_tests(configured, tmp_path):
    grid = compared(configured, tmp_path)
    cells = {row["strategy"]: row for row in table(tmp_path)}
    assert [row["mean over examples"] for row in cells.values()] == [
        "80.0 +- 1.6 *",
        "80.2 +- 0.8 *",
        "50.0 +- 1.6",
    ]
    assert cells["fedadam"]["mean over clients"] == "80.2 +- 0.8"
    assert told(tmp_path) == {"fedavg": "yes", "fedadam": "yes", "fedyogi": "no"}
    fedavg, fedyogi = (f"{name} ({behind(cells[name])})" for name in ("fedavg", "fedyogi"))
    words = (
        f"Marked *: fedadam, which has the best mean, and {fedavg}, which cannot be told from it; {fedyogi} "
        "is worse (paired t-tests over 5 seeds, Bonferroni for all pairs, 5 %). The 95 % intervals of "
        "differences hold for all pairs together."
    )
    assert (tmp_path / "grid.md").read_text().endswith(f"\n{words}\n")
    assert grid.sentence == words
    assert "80.2 +- 0.8 *" in shown(grid)
    rows = {row["strategy"]: row for row in csv_rows(tmp_path / "grid.csv")}
    for name, less in (("fedavg", -0.2), ("fedyogi", -30.2)):
        found = ttest_rel(ACCURACIES[name], ACCURACIES["fedadam"])
        p_value, ends = min(1, 3 * found.pvalue), found.confidence_interval(1 - 0.05 / 3)
        row, columns = rows[name], ("difference from the best, low", "difference from the best, high")
        assert 100 * float(row["difference from the best"]) == pytest.approx(less)
        assert [float(row[column]) for column in columns] == pytest.approx([*ends])
        assert float(row["p (Bonferroni)"]) == pytest.approx(p_value)
        low, high = (f"{100 * end:+.1f}" for end in ends)
        assert cells[name]["difference from the best"] == f"{less:+.1f} ({low} to {high})"
        assert cells[name]["p (Bonferroni)"] == (f"{p_value:.3f}" if p_value >= 0.001 else "< 0.001")
    assert (rows["fedadam"]["p (Bonferroni)"], cells["fedadam"]["difference from the best"]) == ("", "")
    grid.add(configured(strategy="fedyogi", seed=5), None, "it diverged")  # both have the other seeds
    assert [row[TOLD] for row in csv_rows(tmp_path / "grid.csv")][-6:] == ["no"] * 5 + [""]


@pytest.mark.parametrize(("examples", "told_apart"), [([60, 40], "yes"), ([300, 200], "no"), (None, "no")])
def test_a_difference_of_one_case_is_not_told(configured, tmp_path, examples, told_apart):
    """One point under each seed is one of 100 cases, and five of 500."""
    grid = Comparison(tmp_path)
    for strategy, accuracy in (("fedavg", 0.8), ("fedadam", 0.79)):
        for seed in range(5):
            found = summary(accuracy + seed / 50, 0.5, [])
            if examples:
                found["per-class"] = {"names": ["a", "b"], "examples": examples, "accuracy": [1, 1]}
            add_run(grid, configured(strategy=strategy, seed=seed), found)
    assert told(tmp_path) == {"fedavg": "yes", "fedadam": told_apart}


def test_of_many_rows_the_sentence_has_the_number_and_the_ends_of_the_differences(configured, tmp_path):
    """Seven are behind by 10, 20, ..., 70 points, more or less by 1 under each seed."""
    grid = Comparison(tmp_path, ["server-lr"])
    for number in range(8):
        for seed in range(5):
            accuracy = 0.9 - number / 10 + (number * seed % 3 - 1) / 100 * bool(number)
            add_run(grid, configured(server_lr=1 + number, seed=seed), summary(accuracy, accuracy, []))
    differences = [row["difference from the best"].partition(" ")[0] for row in table(tmp_path)[1:]]
    most, least = differences[-1], differences[0]
    assert f"server-lr=1.0, which is best; 7 others ({most} to {least} points) are worse (" in grid.sentence


def test_a_difference_of_a_loss_has_no_unit(configured, tmp_path):
    grid = Comparison(tmp_path)
    for strategy, more in (("fedavg", 0.0), ("fedadam", 0.5)):
        for seed in range(5):
            found = summary(0.5, 0.5, []) | {"compared-by": "loss"}
            loss = 1 + more + (bool(more) * seed) / 100
            add_run(grid, configured(strategy=strategy, seed=seed), found | {"mean": {"loss": loss}})
    words = behind(table(tmp_path)[1]).replace(" points", "")
    assert f"fedadam ({words}) is worse (" in grid.sentence
    assert words.startswith("+0.5200, 95 % +0.5004 to ")
    assert told(tmp_path) == {"fedavg": "yes", "fedadam": "no"}


def test_which_metrics_are_to_be_high_is_what_the_runs_say(configured, tmp_path):
    """Here none is, as an error that has another name than the loss."""
    compared(configured, tmp_path, **{"higher-is-better": []})
    assert told(tmp_path) == {"fedavg": "no", "fedadam": "no", "fedyogi": "yes"}


def test_below_five_seeds_or_thirty_events_it_says_what_cannot_be_known(configured, tmp_path):
    grid = compared(configured, tmp_path, seeds=4)
    assert "*" not in (tmp_path / "grid.md").read_text()
    assert set(told(tmp_path).values()) == {"unknown"}
    beginning = "Which is best cannot be known from only"
    ending = "The best mean is that of fedavg."
    assert grid.sentence == f"{beginning} 4 seeds; at least 5 are needed. {ending}"
    for common, events in ((300, 29), (5, 5), (0, 0)):
        few = {"names": ["well", "ill"], "examples": [common, events], "accuracy": [1, 1]}
        grid = compared(configured, tmp_path / str(events), **{"per-class": few})
        assert grid.sentence.startswith(f"{beginning} {events} held-out cases outside")
    enough = {"names": ["a", "b", "c"], "examples": [100, 20, 10], "accuracy": [1, 1, 1]}
    grid = compared(configured, tmp_path / "enough", **{"per-class": enough})
    assert grid.sentence.startswith("Marked *")


def test_cells_of_other_metrics_columns_or_data_are_not_compared_which_is_said(configured, tmp_path):
    grid = Comparison(tmp_path)
    add_run(grid, configured(), summary(0.5, 0.5, []))
    assert grid.sentence == ""
    assert told(tmp_path) == {"fedyogi": ""}
    grid.add(configured(strategy="fedavg", seed=1), None, "it failed")
    assert told(tmp_path) == {"fedyogi": "", "fedavg": ""}
    losses = summary(0.5, 0.5, []) | {"compared-by": "loss"}
    add_run(grid, configured(strategy="fedadam"), losses)
    words = "Runs whose main metrics differ (accuracy and loss) are not compared with each other."
    assert grid.sentence == words
    one_evaluates = Comparison(tmp_path / "clients")
    add_run(one_evaluates, configured(), summary(0.5, 0.5, []))
    add_run(one_evaluates, configured(strategy="fedavg"), summary(0.5, 0.5, [], 0.5) | {"mean": None})
    words = "Nothing is compared: only fedyogi has a value of accuracy in the column 'mean over examples'."
    assert one_evaluates.sentence == words
    others = compared(configured, tmp_path / "others", keys=["dataset"])
    add_run(others, configured(strategy="fedavg", dataset="quadratic:3"), summary(0.5, 0.5, []))
    assert others.sentence == "Runs on different data are not compared with each other."


def test_pooled_values_decide_where_all_runs_have_them(configured, tmp_path):
    pooled = {"accuracy": 0.5, "loss": 1.0}
    compared(configured, tmp_path, pooled=pooled)
    rows = table(tmp_path)
    assert [row["pooled"] for row in rows] == ["50.0 +- 0.0 *"] * 3
    assert rows[0]["mean over examples"] == "80.0 +- 1.6"


def test_runs_are_paired_by_their_seeds(configured, tmp_path):
    """One is 2 points ahead in each seed, between which are 10 points; its seeds ran in another order."""
    grid = Comparison(tmp_path)
    for strategy, seeds, ahead in (("fedavg", (0, 1, 2, 3, 4), 0.0), ("fedadam", (3, 0, 4, 2, 1), 0.02)):
        for seed in seeds:
            accuracy = 0.5 + seed / 10 + ahead
            found = summary(accuracy, accuracy, [accuracy])
            add_run(grid, configured(strategy=strategy, seed=seed), found)
    assert told(tmp_path) == {"fedavg": "no", "fedadam": "yes"}


def test_runs_of_a_rare_event_are_compared_by_what_tells_them_apart(configured, tmp_path):
    """Who calls nobody ill is right of 96 %, whether the score knows the ill or not: by scikit-learn."""
    rng = np.random.default_rng(2)
    targets = (np.arange(100) < 4).astype(np.int64)
    known = {"fedadam": targets * 0.2, "fedavg": np.zeros(100)}
    grid, areas = Comparison(tmp_path), {}
    for strategy, knowledge in known.items():
        score = 0.2 * rng.random((2, 100)) + knowledge
        cases = {
            site: {"rows": np.arange(100) + 100 * i, "scores": np.stack([1 - s, s], 1), "targets": targets}
            for i, (site, s) in enumerate(zip(("lyon", "turin"), score, strict=True))
        }
        found = summary_of_cases(cases)
        assert found["mean"]["accuracy"] == 0.96
        write_cases(tmp_path / strategy, cases, strategy=strategy)
        row = grid.add(configured(strategy=strategy), Summary.model_validate(found), name=strategy)
        areas[strategy] = roc_auc_score(np.tile(targets, 2), score.ravel())
        assert end_line(strategy, row) == f"{strategy}: 3 rounds  auroc {areas[strategy]:.4g}  1.5 s"
    assert areas["fedavg"] < 0.6 < areas["fedadam"]
    rows = csv_rows(tmp_path / "grid.csv")
    assert {row["strategy"]: float(row["auroc: pooled"]) for row in rows} == pytest.approx(areas)
    assert {name for name in rows[0] if name.startswith("accuracy")} == set()
    assert "auroc: client lyon" in rows[0]
    assert "\nAUROC.\nMean over" in (tmp_path / "grid.md").read_text()
    groups = Sweep.read(tmp_path, "report").groups
    assert common_metric(groups) == "auroc"
    assert "Loss by round" in curves(groups, "auroc")  # an AUROC was measured at the end only
