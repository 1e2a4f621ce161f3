"""The page of a run, a sweep, a search: what stands in it, that it stands alone, that text is only text."""

import json
import re

import pytest

from fedbn_flower.cli.parser import parse
from fedbn_flower.results.report.html import STYLE
from fedbn_flower.results.report.sections.closing import command_of
from fedbn_flower.results.report.sweep_page import colour_scale
from fedbn_flower.results.report.tables import Table
from fedbn_flower.results.run_reader import Run, dataset_name

from .html_page import page
from .written import METRICS, change_run, summary_of, write_run, write_sweep


def test_the_page_of_a_run_of_an_early_version(tmp_path):
    summary = summary_of([0.7, 0.8])
    summary["clients"]["1"]["num-examples"] = 1200
    found = page(write_run(tmp_path / "run", summary))
    assert found.text["h1"] == ["mlp-bn trained on digits by 2 clients with fedyogi and fedbn"]
    assert "2 clients trained mlp-bn on digits" in found.text["p"][0]
    assert "The 3 rounds took 1.5 s." in found.text["p"][0]
    start = found.rows.index(["model", "training examples", "accuracy", "loss"])
    assert found.rows[start + 1 : start + 4] == [
        ["client 0", "10", "70.0 %", "1.000"],
        ["client 1", "1,200", "80.0 %", "1.000"],
        ["mean over examples", "", "75.0 %", "1.000"],
    ]
    assert found.text["h2"] == ["Results", "Costs", "Reproduce this run", "For a paper"]
    assert {"Loss by round", "Accuracy by round", "Accuracy of each client"} == set(found.text["figcaption"])
    assert not {link for link in found.links if not link.startswith(("#", "data:"))}


def test_what_a_later_run_reports_has_its_place(tmp_path):
    accuracies = [i / 100 for i in range(40, 55)]
    figures = {"loss": 2.0, "accuracy": 0.4}
    more = {
        "worst-client": figures,
        "worst-tenth": figures,
        "client-std": {"loss": 0.5, "accuracy": 0.05},
        "per-class": {"names": ["cat", "a<b"], "examples": [3, 4], "accuracy": [0.25, None]},
        "global-per-class": None,
        "rounds-to-target": {"target": 0.9, "mean": 12, "global": None},
        "costs-to-target": {"mean": {"bytes": 2_500_000, "simulated-seconds": 42.25}, "global": None},
        "stopped": "patience",
        "best-round": 2,
        "bytes-sent": 1_500_000,
        "new-clients": {
            "mean": figures,
            "client-mean": figures,
            "clients": {"7": figures | {"num-examples": 5}},
        },
        "failures": 3,
        "seconds-split": {"train": 0.75, "evaluate": 0.25, "server": 12.345},
    }
    folder = write_run(tmp_path / "run", summary_of(accuracies, **more), rounds=9)
    (folder / "failures.csv").write_text(
        "round,phase,partition,reason\n1,train,3,too <big>\n2,train,3,too <big>\n2,train,1,no\n"
    )
    found = page(folder)
    for row in (
        ["worst client", "40.0 %", "2.000"],
        ["standard deviation of clients", "5.0 %", "0.500"],
        ["0", "10", "40.0 %", "1.000"],
        ["cat", "3", "25.0 %"],
        ["a<b", "4", ""],
        ["client 7", "5", "40.0 %", "2.000"],
        ["3", "too <big>", "2"],
    ):
        assert row in found.rows
    worst = [row[0] for row in found.rows if len(row) == 4 and row[0].isdigit()]
    assert worst == ["0", "1", "2", "3", "4"]
    assert "ended early: the validation metric" in found.text["p"][0]
    assert "Seconds of all rounds: train 0.75, evaluate 0.25, server 12.3." in found.text["p"]
    change_run(folder, {"rounds": 3})
    assert "ended early" not in page(folder).text["p"][0]
    assert "round 2" in found.text["p"][0]
    facts = dict(zip(found.text["dt"], found.text["dd"], strict=True))
    assert facts["sent to clients"] == "1.5 MB"
    assert facts["rounds to 90.0 %"] == "12"
    assert facts["sent and received to 90.0 %"] == "2.5 MB"
    assert facts["simulated seconds to 90.0 %"] == "42.2"
    assert {"Worst clients", "Classes", "New clients", "Failures"} <= set(found.text["h2"])


def test_a_run_that_was_stopped_before_a_summary_has_a_page(tmp_path):
    """And a torn row ends a table."""
    torn = "round,loss,client-mean-loss\n1,2"
    found = page(write_run(tmp_path / "run", None, torn, "round,phase,partition,loss\n"))
    assert not Run.read(tmp_path / "run").metrics
    assert "stopped before it wrote a summary" in found.text["p"][0]
    assert "figure" not in found.text


@pytest.mark.usefixtures("drawn_figures")
def test_text_is_only_text(tmp_path):
    evil = "</title><b>&\"'<script>alert(1)</script>"
    folder = write_run(
        tmp_path / "run", summary_of([0.7]), dataset=evil, partition=evil, client_names=[evil], model=evil
    )
    (folder / "partitions.csv").write_text("partition,class,examples\n0,<i>$a$,3\n0,$,1\n")
    found = page(folder)
    assert "alert" not in "".join(found.text["script"])
    assert "b" not in found.text
    assert evil in found.text["h1"][0]


def test_the_command_repeats_the_run(tmp_path, cache_dir):
    words = ["--strategy", "fedadam", "--tau", "0.01", "--client", "silobn", "--rounds", "3", "--seed", "4"]
    words += ["--normalize", "true", "--min-replies", "2", "--cache-dir", str(cache_dir / "a b")]
    (config,) = parse(words)
    stored = config.to_user_config() | {"shape": "shape:1:2", "data": "x", "client-names": [], "versions": {}}
    command = command_of(stored)
    assert command[0] == "fedbn-sim"
    assert parse(command[1:]) == [config]
    given = zip(command[1::2], command[2::2], strict=True)
    assert sorted(given) == sorted(zip(words[::2], words[1::2], strict=True))
    unknown = command_of(stored | {"strategy": "gone.py:Rule", "own": 3})
    assert unknown[-2:] == ["--own", "3"]


def test_a_sweeps_page_has_its_table_and_its_failures(tmp_path):
    """One had found an accuracy before it failed, which is no result of the sweep."""
    folder = write_sweep(tmp_path / "a sweep")
    write_run(folder / "fedyogi-silobn-plain-seed1", summary_of([0.1, 0.1]), METRICS, seed=1)
    (folder / "experiment.json").write_text("{}")
    found = page(folder)
    scale, output = found.text["span"][:2], found.text["span"][2:5]
    assert scale == ["40.0", "90.0"]  # of the coloured table
    assert output == ["fedbn-sim", "--experiment", "'experiment.json'"]
    assert found.text["h1"] == ["Sweep over strategy and client on digits"]
    assert found.text["h2"][:2] == ["Failed runs", "Results"]
    assert "4 cells, 7 runs, 1 failed run; all with objective plain." in found.text["p"]
    assert '<tr class="best">' not in (folder / "report.html").read_text()
    words = (
        "Which is best cannot be known from only 2 seeds; at least 5 are needed. "
        "The best mean is that of fedyogi silobn."
    )
    assert [text for text in found.text["p"] if text.endswith(words)]
    assert words in "".join(found.text["pre"])
    for row in (
        ["fedavg", "silobn", "55.0 ± 7.1", "55.0 ± 7.1", "55.0 ± 7.1", "55.0 ± 7.1", "1.5 ± 0.0"],
        ["fedyogi", "silobn", "90.0", "90.0", "90.0", "90.0", "1.5"],
        ["fedyogi silobn seed 1", "every client failed"],
        ["", "silobn", "fedbn"],
        ["fedavg", "55.0", "75.0"],
        ["fedyogi", "90.0", "40.0"],
    ):
        assert row in found.rows
    links = {link for link in found.links if not link.startswith(("#", "data:"))}
    assert "fedavg-silobn-plain-seed0/report.html" in links
    assert r"fedavg & silobn & 55.0 $\pm$ 7.1" in "".join(found.text["pre"])
    cited = "".join(found.text["pre"])
    assert all(
        key in cited for key in ("mcmahan2017", "reddi2021", "li2021fedbn", "andreux2020", "beutel2020")
    )
    change_run(folder / "fedyogi-fedbn-plain-seed0", {"dataset": "iris"})
    found = page(folder)
    assert found.text["h1"] == ["Sweep over strategy and client"]  # on neither
    words = "Runs on different data are not compared with each other."
    assert [text for text in found.text["p"] if text.endswith(words)]


FIVE_SEEDS = {
    ("fedavg", "silobn"): (0.80, 0.81, 0.79, 0.82, 0.78),
    ("fedavg", "fedbn"): (0.81, 0.80, 0.80, 0.81, 0.79),
    ("fedyogi", "silobn"): (0.50, 0.51, 0.49, 0.52, 0.48),
}
"""Means of 80, 80.2 and 50 %, deviations of 1.58, 0.84 and 1.58 points."""


def test_a_sweeps_page_marks_all_cells_that_cannot_be_told_from_the_best(tmp_path):
    folder = write_sweep(tmp_path / "sweep", FIVE_SEEDS)
    found = page(folder)
    rows = re.findall(r'<tr class="best">.*?</tr>', (folder / "report.html").read_text())
    assert [re.findall(">([^<]+)<", row)[:3] for row in rows] == [
        ["fedavg", "silobn", "80.0 ± 1.6 *"],
        ["fedavg", "fedbn", "80.2 ± 0.8 *"],
    ]
    words = "Marked *: fedavg fedbn, which has the best mean, and fedavg silobn (-0.2 points, 95 % -"
    assert [text for text in found.text["p"] if words in text]
    latex = "".join(found.text["pre"])
    assert r"fedavg & silobn & 80.0 $\pm$ 1.6 * & -0.2 (" in latex
    assert r"\end{tabular}" + "\n" + r"\par\smallskip{\footnotesize " + words.replace("%", r"\%") in latex


def test_the_scale_of_the_heat_map_is_as_wide_as_the_noise(tmp_path):
    """Pooled over 4 degrees of freedom each, (2.5 + 0.7 + 2.5) / 3 = 1.9: 1.378 points, twice 2.757. The
    means 80.2 and 80 lie 0.2 apart, so the scale is 80.1 ± 1.38."""
    alike = {cell: values for cell, values in FIVE_SEEDS.items() if cell[0] == "fedavg"}
    alike["fedyogi", "silobn"] = FIVE_SEEDS["fedavg", "silobn"]
    found = page(write_sweep(tmp_path / "alike", alike))
    assert found.text["span"][:2] == ["78.7", "81.5"]
    assert [text for text in found.text["p"] if "at least two deviations over the seeds wide (2.8)" in text]
    assert page(write_sweep(tmp_path / "apart", FIVE_SEEDS)).text["span"][:2] == ["50.0", "80.2"]


def test_with_one_seed_the_scale_is_as_wide_as_two_standard_errors_of_the_cases(tmp_path):
    """An interval of 0.784 to 0.816 is 2 x 1.96 standard errors of 0.816 points wide: two are 1.6."""
    one = {cell: values[:1] for cell, values in FIVE_SEEDS.items() if cell[0] == "fedavg"}
    one["fedyogi", "silobn"] = (0.805,)
    folder = write_sweep(tmp_path / "few", one)
    found = page(folder)
    words = "With one seed, and no intervals, it is not known what is noise: nothing is coloured."
    assert [text for text in found.text["p"] if text.endswith(words)]
    assert "rgb(" not in (folder / "report.html").read_text().partition("Heat map")[2]
    assert ["fedavg", "80.0", "81.0"] in found.rows
    for run in folder.glob("*/summary.json"):
        ends = {"pooled": {"accuracy": [0.784, 0.816]}, "mean": {}, "clients": {}}
        run.write_text(json.dumps(json.loads(run.read_text()) | {"intervals": ends}))
    found = page(folder)
    assert found.text["span"][:2] == ["79.7", "81.3"]
    words = "The scale is at least two standard errors of the held-out cases wide (1.6)."
    assert [text for text in found.text["p"] if text.endswith(words)]


def test_a_scale_of_percent_does_not_go_beyond_100():
    assert colour_scale([0.99, 1.0], 0.04, "accuracy") == pytest.approx((0.96, 1.0))
    assert colour_scale([0.99, 1.0], 0.04, "loss") == pytest.approx((0.975, 1.015))
    assert colour_scale([0.5, 1.0], 0.04, "accuracy") == (0.5, 1.0)


def test_a_searchs_page_has_its_trials_and_its_best(tmp_path):
    folder = tmp_path / "search"
    write_run(folder / "best", summary_of([0.7, 0.8]))
    (folder / "search.csv").write_text(
        "trial,state,rounds,seconds,value,server-lr,folder\n0,complete,3,1.5,0.7,0.01,trials/0\n"
        "1,pruned,1,0.5,,1.0,trials/1\n2,failed,0,0.1,,0.5,trials/2\n"
    )
    (folder / "search.json").write_text(json.dumps({"search": {"server-lr": "0.001..1"}, "best": None}))
    found = page(folder)
    assert found.text["h1"] == ["Search of server-lr on digits"]
    assert ["1", "pruned", "1", "", "1", "0.5"] in found.rows
    assert ["client 1", "11", "80.0 %", "1.000"] in found.rows
    assert found.text["p"][0] == "3 trials, 1 of them with a value."
    assert ["server-lr", "0.001..1"] in found.rows
    assert found.text["figcaption"] == ["Accuracy by server-lr"]


def test_latex_and_markdown_escape_what_they_must_and_have_a_column_each():
    table = Table(["a_b", "100 %", "x"], [["R&D #1 {~^\\}", "5 ± 1", "$2"], ["c", "", ""]], words=1)
    lines = table.latex().splitlines()
    assert lines[0] == r"\begin{tabular}{lrr}"
    assert lines[1:4] == [r"\toprule", r"a\_b & 100 \% & x \\", r"\midrule"]
    tilde, caret, backslash = r"\textasciitilde{}", r"\textasciicircum{}", r"\textbackslash{}"
    assert lines[4] == rf"R\&D \#1 \{{{tilde}{caret}{backslash}\}} & 5 $\pm$ 1 & \$2 \\"
    assert lines[5:] == [r"c &  &  \\", r"\bottomrule", r"\end{tabular}"]
    assert Table(["a|b", "c"], [["1", "2"]]).markdown() == "| a\\|b | c |\n| --- | ---: |\n| 1 | 2 |\n"


def test_data_at_a_path_are_called_by_its_last_part():
    for given in ("digits", "ylecun/mnist", "synthetic:1,1"):
        assert dataset_name(given) == given
    given = ("/data/of/ward 7", "../scans.csv", "text:/books/plays.txt")
    assert [*map(dataset_name, given)] == ["ward 7", "scans.csv", "text:plays.txt"]


def test_on_a_phone_a_row_of_many_columns_is_a_list_of_their_names_and_values():
    wide, narrow = (Table(["site", *"abc"[:n]], [["lyon", *"123"[:n]]]).html() for n in (3, 2))
    assert '<table class="folds">' in wide
    assert '<td class="number" data-column="b">2</td>' in wide
    assert "<table><thead>" in narrow
    assert "data-column" not in narrow
    intervals = ["75.0 % (69.7 to 79.8)"] * 2
    assert 'class="folds"' in Table(["site", "rare", "balanced"], [["lyon", *intervals]]).html()
    assert "table.folds thead { display: none; }" in STYLE.partition("(max-width: 40rem)")[2]


def test_what_leads_a_page_is_of_all_of_the_worst_client_and_the_cost(tmp_path):
    """Of a model of one's own the title has the name, and of metrics without a value nothing is drawn."""
    more = {"global": {"loss": 2.0, "accuracy": 0.1}, "worst-client": {"loss": 1.0, "accuracy": 0.4}}
    more["worst-tenth"] = more["worst-client"]
    empty = "round,loss,accuracy,client-mean-loss,client-mean-accuracy\n1,2.0,,2.1,\n3,1.0,,1.1,\n"
    summary = summary_of([0.4, 0.8], **more)
    folder = write_run(tmp_path / "run", summary, empty, model="/home/me/nets.py:wide_net")
    found = page(folder)
    assert found.text["h1"] == ["wide_net trained on digits by 2 clients with fedyogi and fedbn"]
    leading = ["accuracy, mean over examples", "accuracy, worst client", "for 3 rounds"]
    assert found.text["dt"][:3] == leading
    assert found.text["dd"][:3] == ["60.0 %", "40.0 %", "1.5 s"]
    assert ["worst client", "", "40.0 %", "1.000"] in found.rows
    assert not any(row[0] == "worst tenth of clients" for row in found.rows)  # which is the worst of two
    assert "Accuracy by round" not in found.text["figcaption"]
    assert "Loss by round" in found.text["figcaption"]
    (latex,) = [text for text in found.text["pre"] if "tabular" in text]
    assert "Mean over examples weights all held-out examples equally" in latex


def test_as_many_cases_of_each_site_and_class_are_a_sentence(tmp_path):
    folder = write_run(tmp_path / "run", summary_of([0.5, 0.5]))
    header, rows = "partition,class,examples\n", [f"{i},{name},9\n" for i in "01" for name in "abc"]
    (folder / "classes.csv").write_text(header + "".join(rows))
    found = page(folder)
    assert "Each of 2 sites has 27 held-out cases, 9 of each of 3 classes." in found.text["p"]
    assert "held-out cases &" not in "".join(found.text["pre"])
    (folder / "classes.csv").write_text(header + "".join(rows[:-1]) + "1,c,8\n")
    found = page(folder)
    assert ["1", "26", "9", "9", "8"] in found.rows
    assert "How many cases, by site and class" in found.text["summary"]
    assert "held-out cases & a & b & c" in "".join(found.text["pre"])
