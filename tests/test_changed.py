"""`scripts/changed`: which tests cover what was changed."""

import sqlite3
import subprocess
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "changed"
CODE, OTHER = "fedbn_flower/core/files.py", "strategies/base.py"
OWN, FAR = "tests/fedbn_flower/core/test_files.py", "tests/strategies/test_base.py"
HOUSE = "tests/test_house.py"
EXPERIMENTS = "tests/fedbn_flower/sweeps/test_experiment_files.py"
TESTS = "def test_one():\n    pass\n\n\ndef test_two():\n    pass\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The script, and a project of two files with four tests, all of it on its branch main."""
    loader = SourceFileLoader("changed", str(SCRIPT))
    script = module_from_spec(spec_from_loader("changed", loader))
    loader.exec_module(script)
    monkeypatch.setattr(script, "ROOT", tmp_path)
    for name, text in {CODE: "a = 1\nb = 2\nc = 3\n", OTHER: "d = 4\n", OWN: TESTS, FAR: TESTS}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git = ["git", "-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=main"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"], ["switch", "-qc", "branch"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    return script


def measured(root, ran):
    """Write what `scripts/mutants` would of tests: their seconds, and the files and lines that each ran."""
    (root / ".mutants").mkdir()
    with sqlite3.connect(root / ".mutants" / "covered.sqlite") as base:
        base.execute("CREATE TABLE tests (name TEXT PRIMARY KEY, seconds REAL)")
        base.execute("CREATE TABLE lines (path TEXT, line INTEGER, test TEXT)")
        for test, (seconds, *lines) in ran.items():
            base.execute("INSERT INTO tests VALUES (?, ?)", [test, seconds])
            base.executemany("INSERT INTO lines VALUES (?, ?, ?)", [(*line, test) for line in lines])


def chosen_by(script, *names):
    """Of the project in which these files have another second line."""
    for name in names:
        path = script.ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        first, _, *rest = [*(path.read_text() if path.exists() else "\n").splitlines(), ""]
        path.write_text("\n".join([first, "changed = True", *rest]))
    return [test for test in script.chosen(script.changed()) if test != HOUSE]


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ([], []),
        ([CODE], ["tests/fedbn_flower/core"]),
        ([OTHER, OWN], [OWN, "tests/strategies"]),
        ([OWN, CODE], ["tests/fedbn_flower/core"]),
        (["strategies/rules/new.py"], ["tests/strategies"]),
        (["tests/strategies/helpers.py"], ["tests/strategies"]),
        (["docs/new.md", "experiments/new.toml"], ["tests/docs", EXPERIMENTS, "tests/test_docs.py"]),
        (["pyproject.toml", "fedbn_flower/annexes.py"], []),
    ],
)  # fmt: skip
def test_where_nothing_was_measured_they_are_those_in_the_nearest_folder(project, changed, tests):
    assert chosen_by(project, *changed) == tests


def test_of_a_measured_line_they_are_those_that_ran_it(project):
    """All cases of a test, and none that is no longer there."""
    gone = OWN.replace("files", "gone")
    ran = {f"{OWN}::test_one[1]": (CODE, 2), f"{FAR}::test_two": (CODE, 2), f"{gone}::test_one": (CODE, 2)}
    ran |= {f"{OWN}::test_two": (CODE, 3), f"{OWN}::test_three": (CODE, 2)}
    measured(project.ROOT, {test: (1.0, line) for test, line in ran.items()})
    assert chosen_by(project, CODE) == [f"{OWN}::test_one", f"{FAR}::test_two"]


def test_own_ones_come_first_then_the_quickest_as_many_as_the_time_allows(project):
    """Of forty seconds the room's own take thirty, in two cases; then there is room for one of the others."""
    seconds = {f"{OWN}::test_one[1]": 10.0, f"{OWN}::test_one[2]": 20.0}
    seconds |= {f"{FAR}::test_one": 6.0, f"{FAR}::test_two": 5.0}
    measured(project.ROOT, {test: (took, (CODE, 2)) for test, took in seconds.items()})
    assert chosen_by(project, CODE) == [f"{OWN}::test_one", f"{FAR}::test_two"]
