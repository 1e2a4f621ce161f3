"""The command ``app``: what it prints, and its mistakes in a line."""

import json
import re
import subprocess
import sys

import pytest

from fedbn_flower.cli import main
from tests.fedbn_flower.apps.written import CLIENT, LEGACY_CLIENT, LEGACY_SERVER, SERVER, write_app
from tests.quick import some_quick

APP = "{app}"
STOP = """\
    if message.content["config"]["server-round"] == 2:
        raise KeyboardInterrupt
    (weights,) ="""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_app(tmp_path / "app")


def test_it_runs_the_app_of_the_current_folder_and_says_where_its_results_are(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert main(["app", ".", "--backend", "inline", "--run-dir", "../out", "-c", "lr=1"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2].startswith("2 rounds in")
    assert printed[-2].endswith("(backend inline)")
    assert printed[-1] == "results are in ../out"


MISTAKES = {
    "no folder": (["nowhere"], "app: 'nowhere' is not allowed; expected the folder of a Flower app"),
    "unknown key": (
        [APP, "-c", "lrr=1"],
        "run-config: unknown key 'lrr' (did you mean 'lr'?); expected one of",
    ),
    "list": ([APP, "-c", "lr=[1,2]"], "run-config: The value for key lr needs to be of type"),
    "no pair": ([APP, "-c", "lr"], "run-config: 'lr' is not allowed; expected key=value"),
    "no quotes": (
        [APP, "-c", "lr=1 name=abc"],
        "'name=abc' is not allowed; expected a number, true, false, or text in quotes, name='abc'",
    ),
    "after quotes": ([APP, "-c", "name='it''s'"], """run-config: "name='it''s'" is not allowed"""),
    "twice": ([APP, "-c", "lr=1 lr=2"], "run-config: 'lr=2' is not allowed; expected lr once"),
    "no TOML file": ([APP, "-c", "none.toml"], "run-config: "),
    "nodes": (
        [APP, "--num-supernodes", "0"],
        "num-supernodes: 0 is not allowed; expected a whole number from 1",
    ),
    "backend": (
        [APP, "--backend", "rey"],
        "backend: 'rey' is not allowed; expected one of auto, inline, ray",
    ),
    "workers": ([APP, "--workers", "-1"], "workers: -1 is not allowed"),
    "seed": ([APP, "--seed", "-1"], "seed: -1 is not allowed"),
    "workers of one process": (
        [APP, "--backend", "inline", "--workers", "3"],
        "workers: 3 is not allowed; expected 0 with backend 'inline'",
    ),
    "folder in use": ([APP, "--run-dir", APP], "run-dir: "),
    "flag": ([APP, "--rounds", "3"], "app: unrecognized arguments: --rounds 3"),
    "stream": ([APP, "--stream"], "app: --stream belongs to flwr run; the log is always shown"),
    "federation": ([APP, "--federation-config=num-supernodes=3"], "write --num-supernodes and --workers"),
    "hub": (["@account/app"], "app: '@account/app' is not allowed"),
}


@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_mistake_is_one_line_before_anything_starts(folder, capsys, arguments):
    given, message = MISTAKES[arguments]
    words = [word.format(app=folder) if word == APP else word for word in given]
    assert main(["app", *words]) == 2
    captured = capsys.readouterr()
    assert message in captured.err.replace(f"{folder.parent}/", "")
    assert (len(captured.err.splitlines()), captured.out) == (1, "")
    assert [path.name for path in folder.parent.iterdir()] == ["app"]


PROJECTS = {
    "no pyproject": (lambda text: None, "expected a folder with a pyproject.toml"),
    "no TOML": (lambda text: "[", "pyproject.toml': "),
    "no app": (lambda text: text.replace("[tool.flwr", "[tool.other"), "Missing [tool.flwr.app] section"),
    "no module": (lambda text: text.replace("small_app.server", "small_app.gone"), "Unable to load module"),
    "no package": (lambda text: text.replace("small_app.server", "gone.server"), "no module 'gone' in"),
    "relative": (lambda text: text.replace("small_app.server", ".server"), "expected 'module:attribute'"),
    "no attribute": (lambda text: text.replace("server_app:app", "server_app:main_app"), "Unable to find"),
    "another kind": (lambda text: text.replace("server_app:app", "server_app:one"), "is of type int"),
    "agent": (lambda text: text.replace("serverapp =", "agentapp ="), "an agentapp needs a SuperLink"),
}


@pytest.mark.parametrize("case", PROJECTS)
def test_a_mistake_in_the_app_is_one_line(folder, capsys, case):
    change, message = PROJECTS[case]
    (folder / "small_app" / "server_app.py").write_text(SERVER + "\none = 1\n")
    project = folder / "pyproject.toml"
    text = change(project.read_text())
    project.unlink() if text is None else project.write_text(text)
    assert main(["app", str(folder), "--run-dir", str(folder.parent / "run")]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize("module", ["__init__", "task"])
def test_a_syntax_error_is_one_line_with_its_place(folder, capsys, module):
    """In a component's package, and in a module that a component imports."""
    file = folder / "small_app" / f"{module}.py"
    file.write_text("x = 1\ndef f(:\n")
    (folder / "small_app" / "server_app.py").write_text(f"import small_app.{module}\n{SERVER}")
    assert main(["app", str(folder), "--run-dir", "run"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"error: app: {str(file)!r}, line 2: invalid syntax: def f(:"


@pytest.mark.parametrize(
    ("module", "body", "error"),
    [
        ("client_app", "raise ValueError('no data here')", "ValueError: no data here"),
        ("__init__", "import gone", "ModuleNotFoundError: No module named 'gone'"),
    ],
)
def test_what_the_app_raises_is_a_whole_traceback_and_status_1(folder, capsys, module, body, error):
    (folder / "small_app" / f"{module}.py").write_text(f"def broken():\n    {body}\n\n\nbroken()\napp = 1\n")
    assert main(["app", str(folder), "--run-dir", "run"]) == 1
    err = capsys.readouterr().err
    assert "in broken" in err
    assert err.count(error) == 1


def test_a_run_in_which_every_client_fails_exits_with_1(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    odd = CLIENT.replace("    (weights,) =", "    raise ValueError('no')\n    (weights,) =")
    folder = write_app(tmp_path / "app", client=odd)
    assert main(["app", str(folder), "--run-dir", "run", "--backend", "inline"]) == 1
    err = capsys.readouterr().err
    assert "failed: every client failed" in err
    assert "results so far are in run" in err


def test_an_override_of_another_kind_is_taken_as_flower_does_and_said(folder, capsys):
    assert main(["app", str(folder), "-c", "name=3 lr=1", "--run-dir", "run", "--backend", "inline"]) == 0
    log = (folder.parent / "run" / "log.txt").read_text()
    assert "name=3 is a number, the app's own 'plain' is text" in log
    assert "lr=1" not in log


def test_overrides_may_be_a_toml_file(folder, tmp_path):
    (tmp_path / "other.toml").write_text("lr = 2.0\n[nested]\ndepth = 4\n")
    arguments = ["-c", str(tmp_path / "other.toml"), "--run-dir", "run", "--backend", "inline"]
    assert main(["app", str(folder), *arguments]) == 0
    assert '"nested.depth": 4' in (tmp_path / "run" / "config.json").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("backend", some_quick(["inline", "auto"], {1}))
def test_neither_torch_nor_ray_is_imported(folder, backend):
    """Both take seconds; an app that uses PyTorch imports it."""
    code = (
        "import sys; from fedbn_flower.cli import main; "
        f"status = main(['app', {str(folder)!r}, '--backend', {backend!r}, '--run-dir', 'run']); "
        "sys.exit(status or bool({'torch', 'ray', 'pandas'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_breakpoints_stop_in_client_and_server(folder, tmp_path):
    """Under pdb, as under any debugger, the default backend is inline."""
    client = folder / "small_app" / "client_app.py"
    text = client.read_text()
    stop = text.replace(
        '    metrics = MetricRecord({"loss"', '    breakpoint()\n    metrics = MetricRecord({"loss"'
    )
    client.write_text(stop)
    start = "import sys; from fedbn_flower.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", start, "app", str(folder), "--run-dir", "run", "--seed", "0"]
    typed = "p float(weights[0])\nwhere\nc\np 'again', float(weights[0])\nq\n"
    done = subprocess.run(command, input=typed, capture_output=True, text=True)
    assert "server_app.py" in done.stdout  # the ServerApp is on the stack
    values = sorted(re.findall(r"^\(Pdb\) (?:\('again', )?([\d.]+)", done.stdout, re.MULTILINE))
    assert values == ["0.5", "1.0"]  # of the two clients, in the order in which they were sampled
    assert done.returncode == 130
    assert "ended in the debugger" in done.stderr


LOCAL = """
[tool.flwr.federations]
default = "{default}"

[tool.flwr.federations.local]
options.num-supernodes = {number}

[tool.flwr.federations.far]
address = "127.0.0.1:9093"
"""
PLACE = "options.num-supernodes of [tool.flwr.federations.local] in pyproject.toml"
NOT_DEFAULT = "Flower's default; pyproject.toml has 3 in local, which is not the default federation"


@pytest.mark.parametrize(
    ("default", "given", "nodes", "origin"),
    [
        ("local", [], 3, PLACE),
        ("local", ["--num-supernodes", "2"], 2, None),
        ("far", [], 2, NOT_DEFAULT),
        (None, [], 2, "Flower's default"),
    ],
)
def test_nodes_are_those_of_the_projects_default_federation(folder, default, given, nodes, origin):
    """Their number is said where nobody gave it; the project's file stays as it is."""
    project = folder / "pyproject.toml"
    if default:
        project.write_text(project.read_text() + LOCAL.format(default=default, number=3))
    before = project.read_bytes()
    assert main(["app", str(folder), "--run-dir", "run", "--backend", "inline", *given]) == 0
    assert project.read_bytes() == before
    run = folder.parent / "run"
    assert json.loads((run / "config.json").read_text())["num-supernodes"] == nodes
    said = re.findall(r"num-supernodes: (\d+) \((.*)\)", (run / "log.txt").read_text())
    assert said == ([(str(nodes), origin)] if origin else [])


@pytest.mark.parametrize("number", ["0", "true"])
def test_a_projects_number_of_nodes_that_is_none_is_refused(folder, number, capsys):
    project = folder / "pyproject.toml"
    project.write_text(project.read_text() + LOCAL.format(default="local", number=number))
    assert main(["app", str(folder), "--run-dir", "run"]) == 2
    assert capsys.readouterr().err.startswith(f"error: {PLACE}: ")
    assert not (folder.parent / "run").exists()


def test_an_interrupted_run_says_where_its_results_are(folder, capsys):
    client = folder / "small_app" / "client_app.py"
    stopping = CLIENT.replace("    (weights,) =", STOP, 1)
    client.write_text(stopping)
    assert main(["app", str(folder), "--run-dir", "run", "--backend", "inline"]) == 130
    assert capsys.readouterr().err.endswith("interrupted\nresults so far are in run\n")
    assert (folder.parent / "run" / "metrics.csv").read_text().splitlines()[1].startswith("1,")


def test_a_server_that_exits_has_its_status_and_its_results(folder, capsys):
    server = folder / "small_app" / "server_app.py"
    server.write_text(f"import sys\n{SERVER}    sys.exit(3)\n")
    with pytest.raises(SystemExit) as raised:
        main(["app", str(folder), "--run-dir", "run", "--backend", "inline"])
    assert raised.value.code == 3
    assert capsys.readouterr().err.endswith("results so far are in run\n")
    assert len((folder.parent / "run" / "metrics.csv").read_text().splitlines()) == 3


def test_a_legacy_app_with_our_strategy_is_told_so_in_a_line(tmp_path, capsys):
    server = LEGACY_SERVER.replace("flwr.server.strategy", "strategies")
    begin, end = server.index("FedAvg(\n"), server.index("    config = ")
    write_app(tmp_path / "app", f"{server[:begin]}FedAvg(min_fit_clients=2)\n{server[end:]}", LEGACY_CLIENT)
    run = str(tmp_path / "run")
    assert main(["app", str(tmp_path / "app"), "--backend", "inline", "--run-dir", run]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: app: FedAvg: ")
    assert last.endswith("import the strategy from flwr.server.strategy")
