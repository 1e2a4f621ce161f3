"""Every code block of README and docs: commands are understood, Python runs, TOML is a run's configuration.

The commands of docs/deployment.md are executed by tests/integration/test_deployment.py.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

pytest.importorskip("fedbn_flower.apps")
pytest.importorskip("fedbn_flower.consortium")
pytest.importorskip("fedbn_flower.estimate")
pytest.importorskip("fedbn_flower.exports")
pytest.importorskip("fedbn_flower.watch")

import fedbn_flower
from fedbn_flower.apps.app import app_in
from fedbn_flower.apps.command import app_parser
from fedbn_flower.apps.run import Settings
from fedbn_flower.cli import main
from fedbn_flower.consortium.command import consortium_parser
from fedbn_flower.consortium.local import LOG, PID
from fedbn_flower.core.named_call import is_of_library
from fedbn_flower.estimate.runs import Speed
from fedbn_flower.exports.model import FORMATS
from fedbn_flower.job.checks.unused_keys import FLOWER, SEARCH, SIMULATION
from fedbn_flower.watch.command import watch_parser
from tests.fedbn_flower.apps.written import write_app
from tests.unused import unused_without_data

from .pages import DOCS, ROOT, blocks

EXECUTED_ELSEWHERE = DOCS / "deployment.md"
BUILT_IN = ("digits", "synthetic:", "quadratic:")
GIVEN = ("x", "y", "x_test", "y_test", "first", "second", "held_out")
"""What a reader of a Python block has already."""
FEW = ("--rounds", "1", "--batch-size", "240", "--backend", "inline")
LOOKS = ("report", "compare", "export", "inspect", "release", "runs")


def understood(arguments, caller=SIMULATION):
    """Parse and check a command line of run_sim.py as the program does; nothing runs, no data are read.

    Every key that it gives is read, as far as is known without data.
    """
    from fedbn_flower.cli.parser import Job, parse_command_line

    job = parse_command_line(arguments)
    configs, caller = (job.configs, caller) if isinstance(job, Job) else (job.args[0].configs(), SEARCH)
    first, *others = configs  # of a sweep, whose values are checked one by one
    assert not any(unused_without_data(config, caller) for config in (first, *others[-1:]))
    return job


def commands_of(block):
    """Its commands, as lists of words; of a line with ``&&`` each one."""
    for line in block.body.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words:
            end = words.index("&&") if "&&" in words else len(words)
            yield words[:end]
            words = words[end + 1 :]


COMMANDS = defaultdict(list)
"""By page."""
for shown in blocks("bash"):
    if shown.page != EXECUTED_ELSEWHERE:
        COMMANDS[str(shown.page.relative_to(ROOT))] += commands_of(shown)


def flags_of_simulation(words):
    """The arguments of run_sim.py where it is that, else None."""
    match words:
        case ["python" | ".venv/bin/python", "run_sim.py", *arguments] | ["fedbn-sim", *arguments]:
            return arguments
    return None


@pytest.fixture(scope="module")
def desk(tmp_path_factory, cache_dir, pictures_never_drawn, draws_always_few):
    """A folder with what the documents name: a run, and the files that blocks write."""
    folder = tmp_path_factory.mktemp("desk")
    for name in ("run_sim.py", "benchmarks", "deploy", "examples", "experiments", "scripts"):
        (folder / name).symlink_to(ROOT / name)
    for block in blocks("python"):
        if block.file_name:
            (folder / block.file_name).write_text(block.body)
    write_app(folder / "path" / "to" / "app")
    assert main([*FEW, "--cache-dir", str(cache_dir), "--run-dir", str(folder / "runs" / "first")]) == 0
    return folder


@pytest.fixture
def at_desk(desk, monkeypatch):
    monkeypatch.chdir(desk)
    monkeypatch.setitem(FORMATS, "onnx", lambda *_: b"")  # tests/fedbn_flower/exports/test_export.py has it
    return desk


@pytest.mark.usefixtures("empty_figures")
@pytest.mark.parametrize("page", COMMANDS)
def test_its_commands_are_understood(page, at_desk, tmp_path):
    """Those whose packages are installed."""
    for words in COMMANDS[page]:
        print(shlex.join(words))  # which one it was, where it fails
        if find_spec("monai") or not any(map(is_of_library, words)):
            assert_understood(words, at_desk, tmp_path)


def assert_understood(words, at_desk, tmp_path):
    arguments = flags_of_simulation(words)
    match words:
        case ["fedbn-sim", "consortium", "try", "--sites", number, *rest]:
            assert number.isdigit()
            own, flower = rest[: rest.index("--")], rest[rest.index("--") + 1 :]
            options = [word for word in own if word.startswith("--")]
            assert set(options) <= {"--secagg", "--folder"}
            assert len(own) == len(options) + options.count("--folder")
            assert flower[:3] == ["flwr", "run", "."]
            check_flower(flower[3:])
        case ["fedbn-sim", "consortium", *rest]:
            consortium_parser().parse_args(rest)
        case ["./join" | "lyon/join", *rest]:
            consortium_parser().parse_args(["join", "kit", *rest])
        case ["sudo", "hospitals/superlink/install"] | ["fedbn-sim", "doctor" | "audit" | "new", *_]:
            pass  # tests/fedbn_flower/consortium has them
        case ["FLWR_HOME=hospitals/flwr", "flwr", "run", _, "--stream", "--run-config", "study.toml"]:
            pass  # tests/integration/test_consortium.py has it
        case ["unzip", "hospitals/kits/lyon.zip", "-d", "lyon"] | ["lyon/run"]:
            pass
        case ["fedbn-sim", "inspect", "--dataset", dataset, *rest, "--to", _] if dataset.startswith("data/"):
            understood(["--dataset", dataset, *rest])  # test_pages_with_data.py runs it
        case _ if arguments and arguments[0] in LOOKS:
            look(arguments, at_desk)
        case _ if arguments and arguments[0] == "ledger":
            assert main(arguments) == 2  # there is no node here: test_floors has one
        case _ if arguments and arguments[0] == "watch":
            watch_parser().parse_args(arguments[1:])
        case _ if arguments and arguments[0] == "app":
            run_of_app(arguments[1:])
        case _ if arguments is not None:
            understood(arguments)
        case ["flwr", "run", ".", *rest]:
            check_flower(rest)
        case ["kill", "-9", "$(cat", file]:
            folder, site, name = file.removesuffix(")").split("/")
            assert f"--folder {folder} " in (DOCS / "secure-aggregation.md").read_text()
            assert re.fullmatch(r"site-\d", site)
            assert name == Path(LOG).with_suffix(PID).name
        case ["python", "-m", module, *rest]:
            text = (at_desk / module.replace(".", "/") / "__main__.py").read_text()
            assert [word for word in rest if word.startswith("--") and f'"{word}"' not in text] == []
        case ["python", script, *rest]:
            text = (at_desk / script).read_text()
            assert [word for word in rest if word.startswith("--") and f'"{word}"' not in text] == []
        case ["ssh-keygen", *_, "-f", name]:
            subprocess.run(words, cwd=tmp_path, check=True)
            assert (tmp_path / f"{name}.pub").exists()
        case ["python3", "-m", "venv", ".venv"] | [".venv/bin/python", "-m", "pytest"]:
            pass
        case [".venv/bin/pip", "install", "-e", what]:
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            assert set(re.findall(r"\w+", what)) <= extras.keys()
        case _:
            raise AssertionError(f"no test knows this command: {words}")


def look(arguments, desk):
    """Run a command on folders that it names: a private run for ``runs/private``, or copies of one run."""
    if "--to" not in arguments and arguments[0] in ("compare", "inspect"):
        arguments = [*arguments, "--to", "runs/to"]
    made = arguments[arguments.index("--to") + 1] if "--to" in arguments else ""
    if made:
        shutil.rmtree(desk / made, ignore_errors=True)
    for name in {word for word in arguments if word.startswith("runs/")} - {made}:
        if (desk / name).exists():
            continue
        if name == "runs/private":
            assert (
                main(["--dp", "client", "--dp-noise", "1", "--dp-delta", "0.1", *FEW, "--run-dir", name]) == 0
            )
        else:
            shutil.copytree(desk / "runs" / "first", desk / name)
    assert main(arguments) == 0


def run_of_app(arguments):
    """Check a command line of ``fedbn-sim app`` and its app as the program does; nothing runs."""
    options = app_parser().parse_args(arguments)
    app = app_in(Path(options.app), options.run_config or ())
    assert Settings(options.num_supernodes or app.num_supernodes, options.backend, options.workers)
    assert app.overrides.keys() <= app.run_config.keys()


def check_flower(words):
    """Options of ``flwr run``: the run configuration means what the same flags mean."""
    options = [word for word in words if word != "--stream"]
    for option, value in zip(options[::2], options[1::2], strict=True):
        assert option in {"--run-config", "--federation-config"}
        parsed = tomllib.loads("\n".join(pairs_of(value)))
        assert parsed
        if option == "--run-config":
            words = [word for key, given in parsed.items() for word in (f"--{key}", str(given))]
            understood(words, FLOWER)


def pairs_of(text):
    """``a='b c' d=1`` as ``a='b c'`` and ``d=1``."""
    return re.findall(r"[\w-]+=(?:'[^']*'|\S+)", text)


def may_be_tried(words):
    """Whether it simulates built-in data, and needs no cluster, GPU, extra, earlier run or search."""
    arguments = flags_of_simulation(words)
    elsewhere = {"--ray-address", "--device", "--resume", "--search", "--experiment", "--track"}
    if (
        arguments is None
        or (arguments and not arguments[0].startswith("-"))  # a command
        or elsewhere & set(arguments)
    ):
        return False
    dataset = arguments[arguments.index("--dataset") + 1] if "--dataset" in arguments else "digits"
    return dataset.startswith(BUILT_IN)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    {" ".join(w): w for found in COMMANDS.values() for w in found if may_be_tried(w)}.values(),
    ids=" ".join,
)
def test_a_command_on_built_in_data_would_run(words, at_desk, cache_dir, capsys, monkeypatch):
    """With ``--dry-run``: the data are read and divided, the model and the algorithms made.

    How fast these are is measured in tests/fedbn_flower/estimate.
    """
    monkeypatch.setattr("fedbn_flower.estimate.runs.speed_of", lambda config: Speed(0, 0, 0, 0))
    given = [word for word in flags_of_simulation(words) if word != "--dry-run"]
    if "--run-dir" in given:  # another test may have made that folder
        place = given.index("--run-dir")
        del given[place : place + 2]
    assert main([*given, "--cache-dir", str(cache_dir), "--dry-run"]) == 0
    assert " to go" in capsys.readouterr().out


@pytest.mark.parametrize("block", blocks("toml"), ids=lambda block: block.name)
def test_an_experiment_file_is_understood(block, tmp_path):
    file = tmp_path / f"experiment.{block.language}"
    file.write_text(block.body)
    understood(["--experiment", str(file)])


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.name)
def test_python_compiles(block):
    compile(block.body, block.name, "exec")


@pytest.mark.slow
def test_python_is_typed(tmp_path):
    """By mypy, as an editor checks it: names, arguments and attributes of this project exist."""
    given = "".join(f"{name}: Any = None\n" for name in GIVEN)
    for block in blocks("python"):
        file = tmp_path / (re.sub(r"\W+", "_", block.name) + ".py")
        file.write_text(f"from typing import Any\n{given}{block.body}")
    command = [sys.executable, "-m", "mypy", "--config-file=", "--no-site-packages", "--check-untyped-defs"]
    command += ["--ignore-missing-imports", "--follow-imports=silent", "--no-error-summary"]
    done = subprocess.run(
        [*command, f"--cache-dir={tmp_path / 'cache'}", str(tmp_path)],
        cwd=ROOT, env={**os.environ, "MYPYPATH": str(ROOT)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("", 0), done.stdout + done.stderr


@pytest.fixture
def small_runs(cache_dir, monkeypatch, pictures_not_drawn, few_draws):
    """``from fedbn_flower import simulate`` gives one that runs two rounds in this process."""
    real = fedbn_flower.simulate

    def simulate(**keys):
        few = {"rounds": 2, "batch_size": 240, "backend": "inline", "progress": False, "cache_dir": cache_dir}
        return real(**{**keys, **few})

    monkeypatch.setattr(fedbn_flower, "simulate", simulate, raising=False)


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.name)
def test_python_runs(block, at_desk, small_runs):
    rng = np.random.default_rng(0)
    x, x_test = rng.normal(size=(400, 5)), rng.normal(size=(100, 5))
    given = {"x": x, "x_test": x_test, "y": (x[:, 0] > 0) * 1, "y_test": (x_test[:, 0] > 0) * 1}
    for name in ("first", "second", "held_out"):
        rows = torch.tensor(rng.normal(size=(60, 5)), dtype=torch.float32)
        given[name] = TensorDataset(rows, (rows[:, 0] > 0).long())
    exec(compile(block.body, block.name, "exec"), given)
