"""What a paper needs of a sweep: its methods, its card, columns of its table, its figures, and its doubts."""

import csv
import json
from dataclasses import replace

import pytest

from fedbn_flower.cli import main
from fedbn_flower.results.plotting.report_plots import mean_curves
from fedbn_flower.results.report.runs_by_seed import Sweep, common_metric
from fedbn_flower.results.report.unfinished import at_edge, still_rising, unfinished
from fedbn_flower.results.run_reader import Run
from fedbn_flower.study.decisions_by_site import made_worse
from fedbn_flower.study.methods import methods, model_card

from ..results.written import summary_of, write_run, write_sweep


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    cells = {(s, c): (0.5, 0.6) for s in ("fedavg", "fedyogi") for c in ("silobn", "fedbn")}
    return write_sweep(tmp_path_factory.mktemp("paper") / "sweep", cells)


def test_the_methods_of_a_sweep_say_once_what_all_share_and_of_each_what_is_its_own(sweep):
    text = methods(Sweep.read(sweep))
    assert "4 configurations that differ in `strategy` and `client` were compared" in text
    assert "all with objective `plain`: `fedavg silobn`, `fedavg fedbn`, " in text
    assert "Each was trained with the seeds 0 and 1." in text
    assert text.count("The network was `mlp-bn`.") == 1
    assert "The seed was" not in text
    assert text.count("With `fedavg silobn` and `fedyogi silobn`: what stayed") == 0  # beside the strategy's
    assert "With `fedyogi fedbn`: from the sites' answers" in text
    for paper in ("mcmahan2017fedavg", "reddi2021adaptive", "li2021fedbn", "andreux2020siloed"):
        assert text.count(f"{{{paper},") == 1


def test_the_card_of_a_sweep_has_its_table_and_its_command(sweep):
    card = model_card(Sweep.read(sweep))
    assert "| fedavg | silobn | 55.0 ± 7.1 |" in card
    assert "fedbn-sim --experiment experiment.json" in card
    assert "One run says nothing" not in card
    assert "One split says nothing" in card


def test_a_sweep_is_written_up_from_the_command_line(sweep, capsys):
    assert main(["export", str(sweep), "--to", "methods"]) == 0
    path = sweep / "methods.md"
    assert capsys.readouterr().out == f"{path}\n"
    assert "configurations that differ in" in path.read_text()


def test_columns_of_the_table_are_written_as_latex_markdown_or_csv(sweep, tmp_path, capsys, refused):
    words = ["export", str(sweep), "--table", "client,mean over clients, strategy"]
    for suffix, line in (
        ("tex", r"silobn & 55.0 $\pm$ 7.1 & fedavg \\"),
        ("md", "| silobn | 55.0 ± 7.1 | fedavg |"),
        ("csv", "silobn,55.0 ± 7.1,fedavg"),
    ):
        assert main([*words, "--to", str(tmp_path / f"t.{suffix}")]) == 0
        assert line in (tmp_path / f"t.{suffix}").read_text()
    with (tmp_path / "t.csv").open() as file:
        assert next(csv.reader(file)) == ["client", "mean over clients", "strategy"]
    capsys.readouterr()
    line = refused("export", sweep, "--table", "accuracy")
    assert line.startswith("table: unknown name 'accuracy'; expected one of ")
    assert "expected a file called .tex, .md, .csv" in refused(*words, "--to", tmp_path / "t.doc")
    assert "expected none with" in refused(*words, "--format", "onnx")


@pytest.mark.usefixtures("drawn_figures")
def test_every_figure_of_the_report_is_a_file(sweep, tmp_path):
    assert main(["export", str(sweep), "--figures", "pdf", "--to", str(tmp_path / "of")]) == 0
    found = {path.name: path.read_bytes() for path in (tmp_path / "of").iterdir()}
    assert found.keys() >= {"accuracy-by-round.pdf", "accuracy-by-site.pdf"}
    assert all(content.startswith(b"%PDF") and b"CreationDate" not in content for content in found.values())
    for form, begins in (("pdf", b"%PDF"), ("svg", b"<?xml")):
        once, again = (mean_curves({"a": [{1: 0.5}]}, "accuracy").as_file(form) for _ in range(2))
        assert once == again
        assert once.startswith(begins)
        assert b"<dc:date>" not in once


def rounds(*values):
    lines = [f"{i},1.0,{value},1.0,{value}" for i, value in enumerate(values, 1)]
    return "round,loss,accuracy,client-mean-loss,client-mean-accuracy\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("values", "rises"),
    [
        ([0.1, 0.2, 0.3, 0.4, 0.5], True),
        ([0.1, 0.5, 0.5, 0.5, 0.5], False),
        ([0.1, 0.3, 0.4, 0.6, 0.5], False),  # not the best round
        ([0.1, 0.80, 0.81, 0.82, 0.83], False),  # 0.01 of 0.73
        ([0.1, 0.2, 0.3, 0.4], False),  # too few to say
    ],
)
def test_a_curve_that_still_rises_is_said(tmp_path, values, rises):
    run = Run.read(write_run(tmp_path / "run", summary_of([values[-1]]), rounds(*values)))
    line = still_rising(run)
    assert bool(line) == rises
    assert not rises or line.startswith(f"Accuracy still rises at the last round, {len(values)} (")


def rates(folder, accuracies):
    """A sweep over server-lr, one seed."""
    lines = ["strategy,client,objective,server-lr,seed,status,seconds,failures,folder"]
    for rate, accuracy in accuracies.items():
        lines.append(f"fedyogi,fedbn,plain,{rate},0,ok,1.5,0,{rate}")
        write_run(folder / str(rate), summary_of([accuracy]), server_lr=rate)
    (folder / "grid.csv").write_text("\n".join(lines) + "\n")
    return Sweep.read(folder).groups


@pytest.mark.parametrize(
    ("accuracies", "which"),
    [
        ({0.001: 0.5, 0.01: 0.6, 0.1: 0.7}, "greatest"),
        ({0.001: 0.8, 0.01: 0.6, 0.1: 0.7}, "least"),
        ({0.001: 0.5, 0.01: 0.8, 0.1: 0.7}, ""),
        ({0.001: 0.5, 0.1: 0.7}, ""),
    ],
)
def test_a_best_rate_at_the_edge_of_its_sweep_is_said(tmp_path, accuracies, which):
    (tmp_path / "s").mkdir()
    groups = rates(tmp_path / "s", accuracies)
    lines = at_edge(groups, common_metric(groups))
    best = max(accuracies, key=accuracies.get)
    line = (
        f"The best server-lr, {best}, is the {which} of the 3 that were tried: beyond it may be a better one."
    )
    assert lines == [line] * bool(which)
    assert unfinished(groups, "accuracy")[: len(lines)] == lines
    for key in ("fold", "left-out"):  # whose numbers are names
        assert at_edge([replace(g, names={key: g.names["server-lr"]}) for g in groups], "accuracy") == []


def test_recalibration_that_makes_a_metric_worse_says_so(tmp_path):
    plain = summary_of([0.5, 0.7])
    after = {"loss": 1.5, "accuracy": 0.6}
    found = {"method": "isotonic", "clients": {}, "mean": after, "client-mean": after}
    written = plain | {"recalibrated": found, "higher-is-better": ["accuracy"]}
    run = Run.read(write_run(tmp_path / "run", json.loads(json.dumps(written))))
    assert made_worse(run, run.summary.recalibrated) == ["Recalibration made worse: loss (1 to 1.5)."]
