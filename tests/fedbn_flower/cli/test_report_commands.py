"""``report``: what it writes and says, and what it refuses; and tables of a terminal."""

import io

import pytest
from rich.console import Console

from fedbn_flower.cli import main, report_commands
from fedbn_flower.results.report import write_report
from fedbn_flower.results.report.tables import Table

from ..results.written import METRICS, summary_of, write_run, write_sweep


@pytest.fixture(autouse=True)
def _reports_are_written(monkeypatch):
    monkeypatch.setattr(report_commands, "write_report", write_report)


@pytest.fixture
def two(tmp_path):
    one = write_run(tmp_path / "one", summary_of([0.5, 0.6]))
    other = {"strategy": "fedadam", "server_lr": 0.1, "seed": 3, "tau": 0.5, "run_dir": "elsewhere"}
    sent = {"bytes-sent": 2_000_000, "bytes-received": 1_000}
    return [one, write_run(tmp_path / "other", summary_of([0.7, 0.9], **sent), METRICS, **other)]


OWN = """
def price_of_the_run(run):
    yield f"<p>{run.config['rounds']} rounds at 2 dollars: {2 * run.config['rounds']} dollars.</p>"

def nothing(run):
    return None

def slip(run):
    yield run.price

number = 3
"""


def test_a_report_has_sections_of_ones_own(two, tmp_path, monkeypatch, capsys):
    (tmp_path / "own_sections.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    plain = write_report(two[0]).read_text()
    assert main(["report", "one", "other", "--section", "own_sections.py:price_of_the_run"]) == 0
    own = "<section>\n<h2>Price of the run</h2>\n<p>3 rounds at 2 dollars: 6 dollars.</p></section>\n"
    before, heading, after = plain.partition("<section>\n<h2>Reproduce this run</h2>")
    assert (two[0] / "report.html").read_text() == before + own + heading + after
    assert own in (two[1] / "report.html").read_text()


WRONG = [
    ("price", "unknown name 'price'; expected FILE.py:NAME or package.module:NAME"),
    ("own_sections.py:number", "'own_sections.py:number' is not allowed; expected a function of the run"),
    ("own_sections.py:nothing", "'own_sections.py:nothing' yields None; expected HTML, as text"),
    ("own_sections.py:slip", "'own_sections.py:slip' raised AttributeError: 'Run' object has no"),
]


def test_a_wrong_section_is_a_line_and_leaves_the_report(two, tmp_path, monkeypatch, refused):
    (tmp_path / "own_sections.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    before = write_report(two[0]).read_text()
    for section, line in WRONG:
        said = refused("report", "one", "--section", f"own_sections.py:price_of_the_run,{section}")
        assert said.startswith(f"section: {line}")
        assert (two[0] / "report.html").read_text() == before


def test_sections_of_ones_own_are_of_runs(tmp_path, monkeypatch, refused):
    (tmp_path / "own_sections.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    sweep = write_sweep(tmp_path / "sweep")
    line = f"report: '{sweep}' holds a sweep; expected the folder of a run or a Flower app's run"
    assert refused("report", sweep, "--section", "own_sections.py:price_of_the_run") == line


def test_what_all_rows_have_can_be_left_out():
    table = Table(["a", "b", "c", "d"], [["x", "y", "1", "2"], ["x", "z", "1", "2"]], words=2, note="so")
    found = table.without_common(2)
    assert (found.header, found.words, found.note) == (["b", "c", "d"], 1, "so")
    assert found.rows == [["y", "1", "2"], ["z", "1", "2"]]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_table_is_divided_to_fit_a_terminal(width):
    """Each part has whole words beside the names of the rows; a file has whole rows."""
    header = ["folder", "client", *(f"client number {i}" for i in range(9)), "seconds"]
    table = Table(header, [["a-folder-of-runs", "fedavg", *["79.6 ± 2.4"] * 9, "3.0 ± 1.0"]] * 2, words=2)
    parts = list(table.parts(width, 2))
    assert [name for part in parts for name in part.header[2:]] == header[2:]
    assert all(part.header[:2] == header[:2] for part in parts)
    of_terminal, of_file = (
        Console(width=width, force_terminal=terminal, color_system=None, file=io.StringIO(), _environ={})
        for terminal in (True, False)
    )
    for console in (of_terminal, of_file):
        table.show(console)
    wrapped, whole = (console.file.getvalue() for console in (of_terminal, of_file))
    assert max(map(len, wrapped.splitlines())) <= width
    assert wrapped.count("79.6 ± 2.4") == 18
    assert [line.count("79.6 ± 2.4") for line in whole.splitlines() if "fedavg" in line] == [9, 9]


def test_report_writes_the_page_anew(two, capsys, monkeypatch):
    assert main(["report", *map(str, two)]) == 0
    assert capsys.readouterr().out.splitlines() == [str(folder / "report.html") for folder in two]
    assert all((folder / "report.html").exists() for folder in two)
