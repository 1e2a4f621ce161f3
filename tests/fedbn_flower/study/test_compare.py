"""``compare``: what it writes and says, and what it refuses."""

import shutil

import pytest
from scipy.stats import ttest_rel

from fedbn_flower.cli import main
from fedbn_flower.results.report.runs_by_seed import common_metric, metrics_table
from fedbn_flower.study.compare import Compared, costs, data_warning, differences, in_common, read_groups
from fedbn_flower.study.sweeps import best_groups

from ..results.html_page import Page
from ..results.written import METRICS, summary_of, write_run, write_sweep


@pytest.fixture
def two(tmp_path):
    one = write_run(tmp_path / "one", summary_of([0.5, 0.6]))
    other = {"strategy": "fedadam", "server_lr": 0.1, "seed": 3, "tau": 0.5, "run_dir": "elsewhere"}
    sent = {"bytes-sent": 2_000_000, "bytes-received": 1_000}
    return [one, write_run(tmp_path / "other", summary_of([0.7, 0.9], **sent), METRICS, **other)]


def test_two_runs_side_by_side(two):
    groups = read_groups(two)
    table = metrics_table(groups, "accuracy")
    assert table.header == [
        "folder",
        "mean over examples",
        "mean over clients",
        "client 0",
        "client 1",
        "seconds",
    ]
    assert table.rows == [
        ["one", "55.0", "55.0", "50.0", "60.0", "1.5"],
        ["other", "80.0", "80.0", "70.0", "90.0", "1.5"],
    ]
    assert "client fedbn, objective plain, " in in_common(groups)
    assert differences(groups).rows == [
        ["strategy", "fedyogi", "fedadam"],
        ["server-lr", "0.01", "0.1"],
        ["seed", "0", "3"],
        ["tau", "", "0.5"],
    ]
    assert costs(groups).rows == [
        ["one", "3", "1.5", "0.5", "0", "", ""],
        ["other", "3", "1.5", "0.5", "0", "2 MB", "1 kB"],
    ]


def test_compare_writes_a_page_and_says_where(two, tmp_path, capsys, monkeypatch):
    """By default into a new folder under ``runs``."""
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *map(str, two)]) == 0
    (to,) = (tmp_path / "runs").iterdir()
    output = capsys.readouterr().out
    assert "80.0" in output
    assert output.splitlines()[-1] == f"the page is {to.relative_to(tmp_path) / 'compare.html'}"
    assert {path.name for path in to.iterdir()} == {"compare.html", "compare.md", "compare.png"}
    assert "| server-lr | 0.01 | 0.1 |" in (to / "compare.md").read_text()
    assert "<td>fedadam</td>" in (to / "compare.html").read_text()


def test_runs_of_different_events_are_not_compared_by_what_depends_on_them(tmp_path):
    """Sensitivity is of other cases; accuracy is the same of either."""
    for name in ("alive", "dead"):
        mean = {"accuracy": 0.5, "loss": 1.0, "sensitivity": len(name) / 10}
        write_run(tmp_path / name, summary_of([0.5, 0.6], mean=mean), events=[name])
    groups = read_groups([tmp_path / "alive", tmp_path / "dead"])
    said = "Runs of different events (alive and dead) are not compared by sensitivity: it is of other cases."
    assert best_groups(groups, "sensitivity").sentence == said
    assert "events" not in best_groups(groups, "accuracy").sentence


def test_different_data_are_said_to_be(two, tmp_path, capsys):
    words = "The runs use different data ({}), so their metrics cannot be compared."
    assert data_warning(read_groups(two)) == ""
    other = write_run(tmp_path / "iris", summary_of([0.7, 0.9]), METRICS, dataset="/data/iris.csv", data="b")
    groups = read_groups([two[0], other])
    assert data_warning(groups) == words.format("digits, iris.csv")
    assert data_warning(read_groups([*two, write_run(tmp_path / "a", data="a")])) == ""  # not known
    changed = [tmp_path / "a", write_run(tmp_path / "b", data="b")]
    assert data_warning(read_groups(changed)) == words.format("digits with different examples")
    later = [tmp_path / "a", write_run(tmp_path / "c", data="b", seed=1)]
    assert data_warning(read_groups(later)) == words.format("digits with different examples")
    to = tmp_path / "page"
    assert main(["compare", str(two[0]), str(other), "--to", str(to)]) == 0
    assert words.format("digits, iris.csv") in capsys.readouterr().out
    assert (to / "compare.html").read_text().count(words.format("digits, iris.csv")) == 1
    assert "Metrics by round" not in (to / "compare.html").read_text()
    assert {path.name for path in to.iterdir()} == {"compare.html", "compare.md"}  # nothing is drawn
    assert words.format("digits, iris.csv") in (to / "compare.md").read_text()
    assert "best" not in (to / "compare.md").read_text()


def test_seeds_are_told_where_they_differ_and_nothing_where_all_is_the_same(two, tmp_path):
    sweep = write_sweep(tmp_path / "sweep", {("fedavg", "fedbn"): (0.5, 0.6)})
    write_run(tmp_path / "alone", summary_of([0.7, 0.9]), strategy="fedavg", client="fedbn")
    found = differences(read_groups([sweep, tmp_path / "alone"]))
    assert [row for row in found.rows if row[0] == "seed"] == [["seed", "0, 1", "0"]]
    shutil.copytree(two[0], tmp_path / "copy")
    compared = Compared.of(read_groups([two[0], tmp_path / "copy"]), "accuracy")
    assert "differences" not in compared.tables
    assert "The runs have the same settings, seeds and data." in compared.page()


def test_data_that_the_seed_draws_are_not_different(tmp_path):
    runs = [
        write_run(tmp_path / f"{name}{seed}", dataset="synthetic:1,1", data=f"drawn {seed}", seed=seed)
        for name in "ab"
        for seed in (0, 1)
    ]
    assert data_warning(read_groups(runs)) == ""


def test_a_metric_that_all_have_can_be_chosen(two, tmp_path, capsys):
    assert main(["compare", *map(str, two), "--metric", "loss", "--to", str(tmp_path / "page")]) == 0
    assert capsys.readouterr().out.split()[0] == "Loss"
    assert main(["compare", *map(str, two), "--metric", "auroc", "--to", str(tmp_path / "none")]) == 2
    line = "error: metric: 'auroc' is not allowed; expected one that all runs have: accuracy, loss\n"
    assert capsys.readouterr().err == line
    assert not (tmp_path / "none").exists()


def test_runs_of_several_metrics_are_compared_by_one_that_all_have(tmp_path):
    by = ("auroc", "accuracy")
    folders = [write_run(tmp_path / name, summary_of([0.5, 0.5], **{"compared-by": name})) for name in by]
    assert common_metric(read_groups(folders)) == "accuracy"


def test_the_cells_of_a_sweep_stand_beside_a_run(two, tmp_path):
    groups = read_groups([two[0], write_sweep(tmp_path / "sweep")])
    rows = metrics_table(groups, "accuracy").rows
    assert rows[0][:4] == ["one", "", "", "55.0"]
    assert rows[2][:4] == ["sweep", "fedavg", "fedbn", "75.0 ± 7.1"]


def test_compare_has_the_differences_of_all_pairs_where_they_are_asked_for(tmp_path, capsys):
    by_client = {"fedbn": (0.80, 0.81, 0.79, 0.82, 0.78), "silobn": (0.81, 0.79, 0.80, 0.81, 0.79),
                 "shared": (0.70, 0.75, 0.72, 0.71, 0.73)}  # fmt: skip
    sweep = write_sweep(tmp_path / "s", {("fedavg", client): values for client, values in by_client.items()})
    assert main(["compare", str(sweep), "--pairs", "--to", str(tmp_path / "to")]) == 0
    found = ttest_rel(by_client["fedbn"], by_client["shared"])
    low, high = (100 * end for end in found.confidence_interval(1 - 0.05 / 3))
    names = ["s fedbn", "s shared"]
    row = [*names, f"+7.8 ({low:+.1f} to {high:+.1f})", f"{3 * found.pvalue:.3f}"]
    text = (tmp_path / "to" / "compare.md").read_text()
    assert f"| {' | '.join(row)} |" in text
    assert text.partition("## all pairs")[2].partition("The 95 % intervals")[0].count("\n| s ") == 3
    assert row in Page((tmp_path / "to" / "compare.html").read_text()).rows
    assert row[2] in capsys.readouterr().out
    few = write_sweep(tmp_path / "few")
    assert main(["compare", str(few), "--pairs", "--to", str(tmp_path / "not")]) == 2
    assert "pairs: Which is best cannot be known from only 2 seeds" in capsys.readouterr().err
    assert not (tmp_path / "not").exists()


def test_the_same_number_is_no_difference(tmp_path):
    for name, decay in (("a", 1), ("b", 1.0)):
        write_run(tmp_path / name, summary_of([0.5, 0.5]), weight_decay=decay)
    write_run(tmp_path / "c", summary_of([0.5, 0.5]), weight_decay=1.5)
    assert not differences(read_groups([tmp_path / "a", tmp_path / "b"])).rows
    (row,) = differences(read_groups([tmp_path / "a", tmp_path / "c"])).rows
    assert row == ["weight-decay", "1", "1.5"]


def test_folders_of_one_name_are_distinguished(tmp_path):
    places = [write_run(tmp_path / part / "run", summary_of([0.5])) for part in "ab"]
    assert [group.names["folder"] for group in read_groups(places)] == list(map(str, places))


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["compare", "nowhere", "nowhere"], "compare: 'nowhere' is not the folder of a run, a"),
        (["compare"], "compare: the following arguments are required: DIR"),
        (["compare", "one"], "compare: 'one' is one run; expected at least two"),
        (["compare", "one", "other", "--to", "one"], "to: 'one' is not allowed; expected a new or"),
        (["compare", "one", "--two", "x"], "compare: unrecognized arguments: --two"),
    ],
)
def test_a_mistake_is_a_line(two, tmp_path, words, output, refused, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused(*words).startswith(output)
