"""The log of a run, and its table."""

import io
import sys

from flwr.app import Message, RecordDict

from fedbn_flower.apps.folder import columns_of, logged
from fedbn_flower.apps.rounds import ERASE, Line, Rounds
from fedbn_flower.runtime.grid import identify_process


def test_the_log_has_no_colours_and_a_print_erases_the_line(tmp_path, capsys):
    identify_process()
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    line = Line(terminal, shown=True)
    with logged(tmp_path, line), Rounds([line]).phase([Message(RecordDict(), 2, "train")]):
        assert not terminal.getvalue().endswith(ERASE)
        print("\x1b[92mgreen\x1b[0m")
        assert terminal.getvalue().endswith(ERASE)
        print("error", file=sys.stderr)
    assert (tmp_path / "log.txt").read_text() == "green\nerror\n"
    assert capsys.readouterr() == ("\x1b[92mgreen\x1b[0m\n", "error\n")


def test_columns_of_training_come_first_and_the_servers_last():
    rows = [{"round": 0, "server-loss": 1}, {"round": 1, "server-loss": 1, "evaluate-b": 1, "train-a": 1}]
    assert columns_of(rows) == ["round", "train-a", "evaluate-b", "server-loss"]
