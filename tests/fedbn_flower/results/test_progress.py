"""What is told as a run goes on; a kernel shows the notebook's bar in `tests.examples.test_notebooks`."""

import io
from contextlib import suppress
from types import SimpleNamespace

import IPython.display
import pytest
import rich
from rich.console import Console
from rich.text import Text

from fedbn_flower.config.making import run_config
from fedbn_flower.records.events import Observer, observed
from fedbn_flower.records.summary import Summary
from fedbn_flower.results import progress
from fedbn_flower.results.report.tables import Table
from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.server.federation import Federation
from fedbn_flower.strategies import PhaseReport

from ..records.helpers import info, result
from .written import write_run


@pytest.fixture
def pictures(monkeypatch):
    """What a notebook was shown at each moment, as text; time stands still."""
    shown = []

    def draw(bar):
        found = bar._repr_mimebundle_()
        shown.append(found["text/plain"] + found["text/html"].partition("<svg")[2])

    def display(bar, display_id):
        assert display_id
        draw(bar)
        return SimpleNamespace(update=draw)

    monkeypatch.setattr(rich, "_console", Console(width=115))
    monkeypatch.setattr(IPython.display, "display", display)
    monkeypatch.setattr(progress.time, "monotonic", lambda: 0.0)
    return shown


@pytest.fixture
def notebook(configured):
    """The bar of three rounds in a notebook."""
    return progress.progress(configured(rounds=3), Console(force_jupyter=True))


def started(bar, first_round=1):
    return observed([bar], info(first_round), lambda: None)


def test_the_bar_of_a_resumed_run_begins_where_it_goes_on(notebook, pictures, configured):
    with started(notebook, first_round=3):
        pass
    assert "2/3" in pictures[0]
    bar = progress.ProgressBar(configured(rounds=3), Console(force_terminal=True, quiet=True))
    with started(bar, first_round=3):
        assert bar._bar.live.is_started
        assert bar._bar.tasks[0].completed == 2
    assert not bar._bar.live.is_started


def test_it_changes_with_the_answers_but_not_too_often(notebook, pictures, monkeypatch):
    with started(notebook):
        for done in (1, 2):
            notebook.on_answer(1, "train", done, 2)
        assert len(pictures) == 1
        monkeypatch.setattr(progress.time, "monotonic", lambda: progress.PAUSE)
        notebook.on_answer(1, "evaluate", 1, 2)
        notebook.on_answer(1, "evaluate", 2, 2)
    assert ["0/3" in pictures[0], "evaluate 1/2" in pictures[1], "1/3" in pictures[2]] == [True] * 3
    waits = "waiting for the first client of the first round"
    assert [waits in picture for picture in pictures] == [True, False, False]
    assert len(pictures) == 3


SERVER = {"loss": 2.0, "accuracy": 0.25}


@pytest.mark.parametrize(
    ("figures", "line", "words"),
    [
        ({"means": {"loss": 1.0, "accuracy": 0.5}, "global_metrics": SERVER},
         "accuracy 50.0 %, best 50.0 %", "accuracy 50.0 %  loss 1.000"),
        ({"means": {"train-loss": 3.0}, "global_metrics": SERVER},
         "global-accuracy 25.0 %, best 25.0 %", "global-accuracy 25.0 %  global-loss 2.000"),
        ({"means": {"accuracy": 0.5}, "pooled": {"accuracy": 0.75}},
         "pooled-accuracy 75.0 %, best 75.0 %", "pooled-accuracy 75.0 %"),
        ({"means": {"train-loss": 3.0}}, "train-loss 3", "train-loss 3.000"),
        ({"train": PhaseReport(failures=["a failure"]), "evaluate": PhaseReport()},
         "failures 1", "failures 1"),
    ],
)  # fmt: skip
def test_what_is_told_of_a_round_begins_with_the_main_metric(configured, capsys, figures, line, words):
    told = result(3, **figures)
    bar = progress.ProgressBar(configured(), Console(quiet=True))
    lines = progress.RoundLines(configured(rounds=5), Console(), "first")
    for observer in (bar, lines):
        with started(observer):
            observer.on_round(told)
    assert bar._bar.tasks[0].fields["metric"] == line
    assert capsys.readouterr().out == f"first: round 3/5  {words}  0.1 s\n"


def test_the_best_so_far_is_that_of_a_resumed_runs_earlier_rounds_too(configured, tmp_path):
    rows = "1,3.0,0.75\n2,2.0,0.5\n3,0.0,0.9\n"  # the third was not in the checkpoint
    (tmp_path / "metrics.csv").write_text(f"round,loss,accuracy\n{rows}")
    for metric, texts in (
        ("accuracy", ["accuracy 25.0 %, best 75.0 %", "accuracy 100.0 %, best 100.0 %"]),
        ("loss", ["loss 2.5, best 2", "loss 1, best 1"]),
    ):
        best = progress.Best(info(3, folder=tmp_path, compared_by=metric))
        rounds = ({"loss": 2.5, "accuracy": 0.25}, {"loss": 1.0, "accuracy": 1.0})
        assert [best.of(result(3, means)) for means in rounds] == texts


def test_the_time_left_is_said_after_the_first_answer_and_corrected(configured, monkeypatch):
    """The first half of three rounds takes 10 s, the second 2 s: 50 s are left, then two rounds of 12 s."""
    bar = progress.ProgressBar(configured(rounds=3), Console(width=80, quiet=True))
    (task,) = bar._bar.tasks
    monkeypatch.setattr(bar._bar, "get_time", lambda: clock[0])
    clock, told = [0.0], []
    with started(bar):
        for seconds, phase in ((10.0, "train"), (12.0, "evaluate")):
            clock[0] = seconds
            bar.on_answer(1, phase, 1, 1)
            told.append(str(progress.TimeLeft().render(task)))
    assert told == ["0:00:50 left", "0:00:24 left"]
    assert str(progress.TimeLeft().render(task)) == ""  # it has ended after a round


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (80, " 12/100 evaluate 10/12 accuracy 50.0 %, best 50.0 %"),
        (40, " 12/100 0:00:00 left accuracy 50.0 %, b…"),
    ],
)
def test_one_line_fits_a_terminal(configured, monkeypatch, width, said):
    console = Console(width=width, force_terminal=True, color_system=None, record=True, file=io.StringIO())
    bar = progress.ProgressBar(configured(rounds=100), console)
    monkeypatch.setattr(progress.TimeRemainingColumn, "render", lambda *_: Text("0:00:00"))
    with started(bar):
        bar.on_round(result(12, {"accuracy": 0.5}))
        bar.on_answer(13, "evaluate", 10, 12)
        console.print(bar._bar.get_renderable())
    assert any(said in line for line in console.file.getvalue().splitlines())


@pytest.mark.parametrize("error", [None, RuntimeError("a failure")])
def test_the_curve_of_the_main_metric_grows_below_the_line_until_the_run_ends(
    notebook, pictures, tmp_path, error, drawn_figures
):
    """A failed run keeps it. Its axis has the rounds that ``metrics.csv`` has."""
    with suppress(RuntimeError), observed([notebook], info(folder=tmp_path), lambda: None):
        for number in (1, 2):
            rows = "".join(f"{i},1.0,0.{i}\n" for i in range(1, number + 1))
            write_run(tmp_path / str(number), metrics=f"round,loss,accuracy\n{rows}")
            for path in (tmp_path / str(number)).iterdir():
                path.replace(tmp_path / path.name)
            notebook.on_round(result(number, {"accuracy": number / 10}))
        if error:
            raise error
    has_curve = ["accuracy, %" in picture for picture in pictures]
    assert has_curve == [False, True, True, bool(error)]
    assert "accuracy 20.0 %, best 20.0 %" in pictures[2]
    assert pictures[1] != pictures[2]


@pytest.mark.parametrize("without", [{"CI": "true"}, {"NO_COLOR": "1"}, None])
def test_a_terminal_says_what_is_waited_for_but_not_where_nobody_watches(
    capsys, configured, monkeypatch, without
):
    for name in ("CI", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with progress.waiting(Console(force_terminal=True), "reading data"):
        pass
    assert "reading data" in capsys.readouterr().out
    for name, value in (without or {}).items():
        monkeypatch.setenv(name, value)
    for console in (Console(force_terminal=bool(without)), Console(force_terminal=True, quiet=True)):
        with progress.waiting(console, "reading data"):
            pass
        assert isinstance(progress.progress(configured(), console), progress.RoundLines)
    assert capsys.readouterr().out == ""


def test_what_was_there_when_it_stopped_stays(notebook, pictures):
    def interrupted():
        with started(notebook):
            notebook.on_answer(1, "train", 2, 2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert "train 2/2" in pictures[-1]


def test_a_notebook_that_asks_for_silence_gets_it(configured, pictures):
    bar = progress.progress(configured(), Console(force_jupyter=True, quiet=True))
    with started(bar):
        bar.on_answer(1, "train", 1, 2)
    assert not pictures


def test_every_answer_is_reported_as_it_comes(configured):
    """Before the next client has begun: the grid makes a reply when it is asked for."""
    config = configured(rounds=2, partition="iid", num_clients=3, fraction_train=0.7)
    output = []

    class Grid(InlineGrid):
        def work(self, messages, timeout):
            for reply in super().work(messages, timeout):
                output.append("answer")
                yield reply

    class Watch(Observer):
        def on_answer(self, *progress):
            output.append(progress)

        def on_round(self, result):
            output.append(result.server_round)

    Federation(config).run(Grid(3, config.to_user_config()), [Watch()])
    rounds = [
        ["answer", (r, "train", 1, 2), "answer", (r, "train", 2, 2),
         "answer", (r, "evaluate", 1, 3), "answer", (r, "evaluate", 2, 3), "answer", (r, "evaluate", 3, 3), r]
        for r in (1, 2)
    ]  # fmt: skip
    assert output[output.index((1, "train", 1, 2)) - 1 :] == rounds[0] + rounds[1]


@pytest.mark.parametrize(
    ("events", "keys", "first"), [(4, {"metrics": "accuracy,auroc"}, "auroc"), (20, {}, "accuracy")]
)
def test_the_accuracy_of_a_rare_event_does_not_lead(tmp_path, capsys, configured, events, keys, first):
    rows = [f"{i},{int(i < events)}" for i in range(100)]
    (tmp_path / "deaths.csv").write_text("\n".join(["age,died", *rows]))
    keys |= {"dataset": str(tmp_path / "deaths.csv"), "label_column": "died", "model": "linear"}
    told = Federation(configured(**keys, client="shared", partition="iid", num_clients=2)).info
    bar = progress.ProgressBar(configured(), Console(quiet=True))
    values = {"loss": 0.5, "accuracy": 0.96, "auroc": 0.7}
    for observer in (bar, progress.RoundLines(configured(), Console())):
        with observed([observer], told, lambda: None):
            observer.on_round(result(1, values, metric_names=told.metrics))
    assert bar._bar.tasks[0].fields["metric"].startswith(f"{first} ")
    assert f"round 1/2  {first} " in capsys.readouterr().out


def test_a_class_or_site_that_is_called_like_markup_is_told_as_it_is():
    told = Console(file=io.StringIO(), width=200)
    classes = {"names": ["[/x]", "b"], "examples": [9, 1], "accuracy": [1.0, 0.0]}
    of = {"mean": {"accuracy": 0.9}, "compared-by": "accuracy", "eval-data": "local", "per-class": classes}
    told.print(progress.summary_table(run_config({}), Summary.model_validate(of)))
    Table(["site"], [["[b]"]]).show(told, "no value at [/y]")
    shown = " ".join(told.file.getvalue().split())
    assert all(text in shown for text in ("90.0 % are '[/x]'", "[b]", "no value at [/y]"))
