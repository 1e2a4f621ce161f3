"""What is told as a run goes on; a kernel shows the notebook's bar in `tests.examples.test_notebooks`."""

from types import SimpleNamespace

import IPython.display
import pytest
from rich.console import Console

from fedbn_flower.records.events import Observer, observed
from fedbn_flower.results import progress
from fedbn_flower.runtime.inline import InlineGrid
from fedbn_flower.server.federation import Federation

from ..records.helpers import info


@pytest.fixture
def pictures(monkeypatch):
    """What a notebook was shown at each moment, as text; time stands still."""
    shown = []

    def draw(bar):
        shown.append(bar._repr_mimebundle_([], [])["text/plain"])

    def display(bar, display_id):
        assert display_id
        draw(bar)
        return SimpleNamespace(update=draw)

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


def test_a_terminal_says_what_is_waited_for(capsys):
    with progress.waiting(Console(force_terminal=True), "reading data"):
        pass
    assert "reading data" in capsys.readouterr().out
    for console in (Console(force_terminal=False), Console(force_terminal=True, quiet=True)):
        with progress.waiting(console, "reading data"):
            pass
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
