"""The two means over clients, by hand; and what tables and pictures call them."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import ArrayRecord, MetricRecord
from rich.console import Console

from clients import Classification, NextCharacter
from fedbn_flower.records.events import RoundResult
from fedbn_flower.records.metrics import held_out_means, jain, round_means
from fedbn_flower.records.summary import Summary
from fedbn_flower.results.plotting import plots
from fedbn_flower.results.progress import ProgressBar, cell_name, summary_table
from fedbn_flower.results.report.runs_by_seed import Group
from fedbn_flower.results.report.runs_by_seed import metrics_table as of_groups
from fedbn_flower.results.report.sections.client_tables import _table, metrics_table
from fedbn_flower.results.run_reader import Run
from fedbn_flower.results.summary import shown_mean
from fedbn_flower.runtime.server_app import RoundLog
from strategies import PhaseReport

from .html_page import page
from .written import add_run, csv_rows, write_run

# One client with 1 held-out example and accuracy 1, one with 9 and 0.5: (1 * 1 + 9 * 0.5) / 10 = 0.55 over
# examples, 0.75 over clients; loss (1 * 2 + 9 * 4) / 10 = 3.8 and 3.
FIRST = {"loss": 2.0, "accuracy": 1.0}
SECOND = {"loss": 4.0, "accuracy": 0.5}
MEANS = {"loss": 3.8, "accuracy": 0.55, "client-mean-loss": 3.0, "client-mean-accuracy": 0.75}


def records(*metrics):
    return [MetricRecord(m) for m in metrics]


ONE_AND_NINE = [
    FIRST | {"num-examples": 90, "eval-examples": 1},
    SECOND | {"num-examples": 10, "eval-examples": 9},
]
HUGE = [{"loss": 1e308, "eval-examples": 1e308}, {"loss": 1e308, "eval-examples": 1}]


@pytest.mark.parametrize(
    ("clients", "after_training", "means"),
    [
        ([FIRST | {"num-examples": 1}, SECOND | {"num-examples": 9.0}], False, MEANS),
        (ONE_AND_NINE, False, MEANS),
        (ONE_AND_NINE, True, MEANS),  # num-examples are training examples, which would give 0.95
        (
            [FIRST | {"num-examples": 90}, SECOND | {"num-examples": 10}],
            True,
            {"client-mean-loss": 3.0, "client-mean-accuracy": 0.75},
        ),
        (HUGE, True, {"loss": np.inf, "client-mean-loss": np.inf}),
    ],
)
def test_means_are_over_held_out_examples_and_over_clients(clients, after_training, means):
    found = held_out_means(records(*clients), after_training, Classification())
    assert found == pytest.approx(means)


def test_a_perplexity_is_that_of_the_mean_loss():
    """exp(3.8); the mean over clients is of what they report, (exp(2) + exp(4)) / 2. In training the mean
    loss is 3, of clients with 2 and 4; the mean of their perplexities is 31, exp(3) is 20."""
    reported = records(
        FIRST | {"perplexity": np.exp(2), "eval-examples": 1},
        SECOND | {"perplexity": np.exp(4), "eval-examples": 9},
    )
    perplexities = {"perplexity": np.exp(3.8), "client-mean-perplexity": (np.exp(2) + np.exp(4)) / 2}
    assert held_out_means(reported, False, NextCharacter()) == pytest.approx(MEANS | perplexities)
    train = {"train-loss": 3.0, "train-accuracy": 0.5, "train-perplexity": (np.exp(2) + np.exp(4)) / 2}
    means = round_means(train, None, PhaseReport(), False, NextCharacter())
    assert means == pytest.approx(train | {"train-perplexity": np.exp(3)})


def test_the_test_set_beside_a_validation_set_has_its_own_count():
    """Accuracies on 4 and 1 validation examples, and on 2 and 8 test examples."""
    a = {"accuracy": 0.5, "eval-examples": 4, "test-accuracy": 1.0, "test-examples": 2, "num-examples": 4}
    b = {"accuracy": 1.0, "eval-examples": 1, "test-accuracy": 0.25, "test-examples": 8, "num-examples": 1}
    assert held_out_means(records(a, b), False, Classification()) == pytest.approx(
        {
            "accuracy": (4 * 0.5 + 1 * 1.0) / 5,
            "client-mean-accuracy": 0.75,
            "test-accuracy": (2 * 1.0 + 8 * 0.25) / 10,
            "client-mean-test-accuracy": 0.625,
        }
    )
    del a["test-examples"], b["test-examples"]  # num-examples counts the validation set
    assert "test-accuracy" not in held_out_means(records(a, b), False, Classification())


def test_the_mean_over_examples_is_that_of_the_clients_that_say_how_many():
    reported = records(
        FIRST | {"eval-examples": 1},
        SECOND | {"eval-examples": 9},
        {"accuracy": 0.0, "eval-examples": 0},
        {"accuracy": 0.0, "eval-examples": -10},
        {"accuracy": [0.0], "eval-examples": 5},
        {"eval-examples": 5},
    )
    means = held_out_means(reported, True, Classification())
    assert means["accuracy"] == pytest.approx(0.55)
    assert means["client-mean-accuracy"] == pytest.approx((1 + 0.5 + 0 + 0) / 4)


def test_the_strategys_mean_stands_for_what_is_not_held_out():
    """Its own mean of the accuracy, 0.95, is over training examples; it must not be called accuracy."""
    train = {"train-loss": 0.7, "local-steps": np.float32(12.5), "accuracy": 0.95, "eval-examples": 5.0}
    report = PhaseReport(dict(enumerate(records(FIRST, SECOND))))
    means = round_means(train, None, report, True, Classification())
    assert means == {
        "train-loss": 0.7, "local-steps": 12.5, "client-mean-loss": 3.0, "client-mean-accuracy": 0.75
    }  # fmt: skip
    evaluated = MetricRecord({"f1": 0.4, "train-examples": 700.0, "accuracy": 0.95, "per-class": [0.1]})
    report = PhaseReport(
        {0: MetricRecord(FIRST | {"num-examples": 1}), 1: MetricRecord(SECOND | {"num-examples": 9})}
    )
    means = round_means(train, evaluated, report, False, Classification())
    assert means == pytest.approx({"train-loss": 0.7, "local-steps": 12.5, "f1": 0.4, **MEANS})


# ---- tables and pictures ----------------------------------------------------------------------------


def summary(examples, clients, accuracies, global_accuracy=None):
    """A run's summary with these means; every loss is 1."""

    def figures(accuracy):
        return {"accuracy": accuracy, "loss": 1.0}

    return {
        "rounds": 2,
        "seconds": 1.0,
        "failures": 0,
        "compared-by": "accuracy",
        "global": None if global_accuracy is None else figures(global_accuracy),
        "mean": figures(examples),
        "client-mean": figures(clients),
        "clients": {str(i): figures(a) | {"num-examples": 10} for i, a in enumerate(accuracies)},
        **dict.fromkeys(("worst-tenth", "new-clients", "rounds-to-target")),
    }


def shown(of):
    """What a terminal shows of a run's table or of a sweep."""
    console = Console(width=200, file=io.StringIO())
    if hasattr(of, "further_tables"):
        of.table().show(console, of.title)
    else:
        console.print(of)
    return console.file.getvalue()


def test_a_grids_table_has_both_means_by_name(configured, tmp_path, sweeps_table):
    """Seeds with 0.5 and 0.7 over examples: mean 0.6, sample deviation 0.1414; the population's is 0.1."""
    grid = sweeps_table(tmp_path)
    add_run(grid, configured(seed=0), summary(0.5, 0.9, [1.0, 0.8]))
    add_run(grid, configured(seed=1), summary(0.7, 0.7, [0.6, 0.8]))
    table, note = (tmp_path / "grid.md").read_text().split("\n\n")
    header, _, row = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines())
    cells = dict(zip(header, row, strict=True))
    assert cells["mean over examples"] == "60.0 +- 14.1"
    assert cells["mean over clients"] == "80.0 +- 14.1"
    assert cells["client 0"] == "80.0 +- 28.3"
    assert "global" not in cells
    assert note.startswith("Accuracy in %, mean +- sample standard deviation (n - 1) over 2 seeds.\n")
    assert "every held-out example counts alike" in note
    terminal = shown(grid)
    assert "mean +- sample standard deviation (n - 1) over 2 seeds" in terminal
    assert "60.0 +- 14.1" in terminal
    first, *_ = csv_rows(tmp_path / "grid.csv")
    assert first["accuracy: mean over examples"] == "0.5"
    assert first["accuracy: mean over clients"] == "0.9"


@pytest.mark.parametrize(("problem", "said"), [("multi-label", True), ("classification", False)])
def test_tables_of_several_labels_say_that_values_are_means_over_them(
    configured, tmp_path, problem, said, sweeps_table
):
    config, words = configured(), "alues are means over the labels: loss and accuracy over all, others"
    found = summary(0.5, 0.5, [0.5, 0.5])
    folder = write_run(tmp_path / cell_name(config), found, problem=problem)
    grid = sweeps_table(tmp_path)
    grid.add(config, Summary.model_validate(found))
    terminal = shown(
        summary_table(config.model_copy(update={"problem": problem}), Summary.read(folder, "run"))
    )
    of_run, of_sweep = (" ".join(page(of).text["p"]) for of in (folder, tmp_path))
    every = (grid.title, (tmp_path / "grid.md").read_text(), terminal, of_run, of_sweep)
    assert [words in " ".join(text.split()) for text in every] == [said] * 5


def test_jains_index_has_no_unit(configured, tmp_path, sweeps_table):
    """Of 1.0 and 0.5 it is 0.9, and of 0.8 and 0.8 it is 1; beside a metric in percent both stay so."""
    grid = sweeps_table(tmp_path)
    for seed, values in enumerate(([1.0, 0.5], [0.8, 0.8])):
        more = {"client-jain": {"accuracy": jain(values), "loss": 1.0}}
        add_run(grid, configured(seed=seed), summary(0.7, 0.7, values) | more)
    assert "| 0.950 +- 0.071 |" in (tmp_path / "grid.md").read_text()
    rows = csv_rows(tmp_path / "grid.csv")
    assert [float(row["accuracy: Jain's index"]) for row in rows] == pytest.approx([0.9, 1])
    run = Run(tmp_path, {}, Summary.model_validate(summary(0.7, 0.7, values) | more), [])
    assert ["Jain's index of clients", "", "1.000", "1.000"] in metrics_table(run).rows
    table = of_groups([Group({"strategy": "fedavg"}, [run])], "accuracy")
    assert dict(zip(table.header, table.rows[0], strict=True))["Jain's index"] == "1.0000"


def test_a_grid_of_runs_without_client_evaluation(configured, tmp_path, sweeps_table):
    grid = sweeps_table(tmp_path)
    nobody = summary(0, 0, [], global_accuracy=0.25) | {"mean": None, "client-mean": None}
    add_run(grid, configured(), nobody)
    header, _, row, _, note, *_ = grid.markdown().splitlines()
    assert (header, row) == (
        "| strategy | client | objective | global |",
        "| fedyogi | fedbn | plain | 25.0 |",
    )
    assert note == "Accuracy in %."


def test_a_runs_table_has_both_means_by_name(configured):
    text = shown(summary_table(configured(), Summary.model_validate(summary(0.55, 0.75, [1.0, 0.5]))))
    rows = {line.split("│")[1].strip(): line for line in text.splitlines() if line.count("│") > 2}
    assert "55.0 %" in rows["mean over examples"]
    assert "75.0 %" in rows["mean over clients"]
    uncounted = summary(None, 0.75, [])
    uncounted["mean"]["loss"] = None
    assert "None" not in shown(summary_table(configured(), Summary.model_validate(uncounted)))


def test_a_mean_says_how_many_clients_have_no_value(configured):
    """Two of three have an accuracy, none of three a loss of their own; the others are as they were."""
    found = summary(0.55, 0.75, [1.0, 0.5, 0.5])
    found["clients"]["2"]["accuracy"] = None
    for client in found["clients"].values():
        client["loss"] = None
    text = shown(summary_table(configured(), Summary.model_validate(found)))
    rows = {line.split("│")[1].strip(): line for line in text.splitlines() if line.count("│") > 2}
    assert "55.0 % (1 of 3 has none)" in rows["mean over examples"]
    assert "75.0 % (1 of 3 has none)" in rows["mean over clients"]
    assert text.count("none)") == 2
    run = SimpleNamespace(class_columns=(), main_metric="accuracy", summary=Summary())
    of_report = _table(run, "model", {"mean over clients": found["client-mean"]}, found["clients"])
    assert [cell for cell in of_report.rows[0] if "none" in cell] == ["75.0 % (1 of 3 has none)"]
    clients = {"0": {"accuracy": None}, "1": {"accuracy": None}, "2": {"accuracy": 1.0}}
    assert shown_mean("accuracy", {"accuracy": 1.0}, clients) == "100.0 % (2 of 3 have none)"


@pytest.fixture
def drawn(monkeypatch):
    """The figures that would be saved."""
    figures = []
    for module in (pytest.importorskip("fedbn_flower.sweeps.grid_table"), plots):
        monkeypatch.setattr(module, "save_figure", lambda figure, _: figures.append(figure))
    return figures


def test_pictures_say_which_mean_they_show(configured, tmp_path, drawn, sweeps_table):
    """Seeds 0 and 1 at 50 and 70 %: the curve of the cell is at 60. A run without an accuracy in a round
    has no point there, and never the global model's."""
    grid = sweeps_table(tmp_path)
    for seed, rows in ((0, "1,0.5,0.9\n2,,0.9\n"), (1, "1,0.7,0.9\n2,,0.9\n")):
        write_run(tmp_path / str(seed), metrics="round,accuracy,global-accuracy\n" + rows)
        found = Summary.model_validate(summary(0.5, 0.9, []))
        grid.add(configured(seed=seed), found, name=str(seed))
    grid.plot()
    (axes,) = drawn[0].axes
    assert axes.get_ylabel() == "accuracy, %\n(mean over held-out examples)"
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[1, 60]])

    for row in grid.rows:
        (tmp_path / str(row["folder"]) / "metrics.csv").write_text("round,accuracy,global-accuracy\n1,,0.9\n")
    grid.plot()
    (axes,) = drawn[1].axes
    assert axes.get_ylabel() == "accuracy, %\n(global model)"
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[1, 90]])

    metrics = "round,loss,accuracy,train-loss,client-mean-loss,client-mean-accuracy\n1,2.5,0.5,0.1,9,9\n"
    plots.plot_curves(write_run(tmp_path / "run", metrics=metrics))
    labels = {line.get_label() for axes in drawn[2].axes for line in axes.lines}
    assert labels == {"clients, training (weighted mean)", "clients, held out (mean over examples)"}


def test_the_log_has_a_line_a_round(caplog):
    report = PhaseReport(
        dict(enumerate(records(FIRST | {"eval-examples": 1}, SECOND | {"eval-examples": 9})))
    )
    means = round_means(None, None, report, True, Classification())
    names = ("loss", "accuracy")
    result = RoundResult(3, 0.1, ArrayRecord(), report, report, means, {"accuracy": 0.25}, names)
    with caplog.at_level("INFO", "flwr.fedbn"):
        RoundLog().on_round(result)
    assert caplog.messages == [
        "round 3: loss 3.8000, client-mean-loss 3.0000, accuracy 0.5500, client-mean-accuracy 0.7500, "
        "global-accuracy 0.2500, failures 0"
    ]


@pytest.mark.parametrize(
    ("values", "completed"), [({}, [2.25, 2.5, 2.75, 3.0]), ({"fraction_evaluate": 0}, [2.5, 3.0])]
)
def test_the_bar_moves_with_every_answer(configured, values, completed):
    """Two clients in round 3; where they are asked twice, each phase is half a round."""
    bar = ProgressBar(configured(**values), Console(quiet=True))
    (task,) = bar._bar.tasks
    seen = []
    for phase in ("train", "evaluate")[: len(completed) // 2]:
        for done in (1, 2):
            bar.on_answer(3, phase, done, 2)
            seen.append(task.completed)
            assert task.fields["clients"] == f"{phase} {done}/2"
    assert seen == completed
