"""``report``: what it writes and says, and what it refuses; and tables of a terminal."""

import io

import pytest
from rich.console import Console

from fedbn_flower.cli import main, report_commands
from fedbn_flower.results.report import write_report
from fedbn_flower.results.report.tables import Table
from fedbn_flower.results.terminal import fit_to_width

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


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ("price", "unknown name 'price'; expected FILE.py:NAME or package.module:NAME"),
        ("own_sections.py:number", "'own_sections.py:number' is not allowed; expected a function of the run"),
        ("own_sections.py:nothing", "'own_sections.py:nothing' yields None; expected HTML, as text"),
        (
            "own_sections.py:slip",
            "'own_sections.py:slip' raised AttributeError: 'Run' object has no attribute",
        ),
    ],
)
def test_a_wrong_section_is_one_line_and_leaves_the_report(section, line, two, tmp_path, monkeypatch, capsys):
    (tmp_path / "own_sections.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    before = write_report(two[0]).read_text()
    assert main(["report", "one", "--section", f"own_sections.py:price_of_the_run,{section}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: section: {line}")
    assert error.count("\n") == 1
    assert (two[0] / "report.html").read_text() == before


def test_sections_of_ones_own_are_of_runs(tmp_path, monkeypatch, capsys):
    (tmp_path / "own_sections.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    sweep = write_sweep(tmp_path / "sweep")
    assert main(["report", str(sweep), "--section", "own_sections.py:price_of_the_run"]) == 2
    assert (
        capsys.readouterr().err == f"error: report: '{sweep}' holds a sweep; expected the folder of a run "
        "or a Flower app's run\n"
    )


def test_what_all_rows_have_can_be_left_out():
    table = Table(["a", "b", "c", "d"], [["x", "y", "1", "2"], ["x", "z", "1", "2"]], words=2, note="so")
    found = table.without_common(2)
    assert (found.header, found.words, found.note) == (["b", "c", "d"], 1, "so")
    assert found.rows == [["y", "1", "2"], ["z", "1", "2"]]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_table_is_divided_to_fit_a_terminal(width):
    header = ["folder", "client", *(f"client number {i}" for i in range(9)), "seconds"]
    table = Table(header, [["a-folder-of-runs", "fedavg", *["79.6 ± 2.4"] * 9, "3.0 ± 1.0"]] * 2, words=2)
    parts = list(table.parts(width, 2))
    assert [name for part in parts for name in part.header[2:]] == header[2:]
    assert all(part.header[:2] == header[:2] for part in parts)
    console = Console(width=width, file=io.StringIO())
    for part in parts:
        console.print(fit_to_width(part.terminal(), width))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert sum(line.count("79.6 ± 2.4") for line in lines) == 18


def test_report_writes_the_page_anew(two, capsys, monkeypatch):
    assert main(["report", *map(str, two)]) == 0
    assert capsys.readouterr().out.splitlines() == [str(folder / "report.html") for folder in two]
    assert all((folder / "report.html").exists() for folder in two)


def test_a_folder_of_no_run_is_a_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["report", "."]) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        "error: report: '.' is not the folder of a run, a sweep, a search or a Flower app's run: it has no"
    )
    assert error.count("\n") == 1
