"""Folders from somebody else: what they name is not run unless the caller says so."""

import json
import shutil

import pytest

from fedbn_flower import Result, UserError, cli, load_model, simulate
from fedbn_flower.cli.parser import parse
from fedbn_flower.config.trust import code_in
from fedbn_flower.results.report.sections.closing import command_of

CODE = """
import pathlib
from clients import FedAvgClient
from fedbn_flower.models.networks import linear as net
pathlib.Path({ran!r}).touch()
class Mine(FedAvgClient): pass
"""


@pytest.fixture(scope="module")
def made(cache_dir, tmp_path_factory, pictures_never_drawn):
    """The folder of a run whose model and client are code, and the files in it."""
    home = tmp_path_factory.mktemp("home")
    file = home / "mine.py"
    file.write_text(CODE.format(ran=str(home / "never")))
    keys = {"rounds": 1, "batch_size": 0, "backend": "inline", "cache_dir": cache_dir, "progress": False}
    own = {"model": f"{file}:net", "client": f"{file}:Mine"}
    return simulate(**keys, **own, strategy="fedavg", run_dir=home / "run").folder


@pytest.fixture
def foreign(made, tmp_path):
    """The same folder as it comes from somebody else, whose code leaves a file when it is run."""
    file = tmp_path / "evil.py"
    file.write_text(CODE.format(ran=str(tmp_path / "ran")))
    folder = tmp_path / "run"
    shutil.copytree(made, folder)
    facts = folder / "config.json"
    facts.write_text(facts.read_text().replace(str(made.parent / "mine.py"), str(file)))
    return folder


def ran(foreign):
    return (foreign.parent / "ran").exists()


def refused(foreign, capsys, key):
    error = capsys.readouterr().err
    code = {"model": "net", "client": "Mine"}[key]
    assert error == (
        f"error: {key}: '{foreign.parent}/evil.py:{code}' is code that '{foreign}/config.json' names, which "
        "is not run unasked; expected trust-code true, if you trust it, or the same name given by yourself\n"
    )
    assert not ran(foreign)
    return True


@pytest.mark.parametrize("load", [load_model, lambda folder, **keys: Result(folder, **keys).model()])
def test_a_models_code_is_run_only_where_it_is_trusted(foreign, load):
    with pytest.raises(UserError, match=r"^model: '/.*/evil.py:net' is code that '/.*config.json' names"):
        load(foreign)
    assert not ran(foreign)
    assert load(foreign, trust_code=True)[1].out_features == 10
    assert ran(foreign)


def test_a_model_given_by_the_caller_is_run(foreign):
    own = foreign.parent / "own.py"
    own.write_text("from fedbn_flower.models.networks import linear as net\n")
    assert load_model(foreign, model=f"{own}:net")[1].out_features == 10
    with pytest.raises(UserError, match="^client: '/.*/evil.py:Mine' is code"):
        load_model(foreign, client=0, model=f"{own}:net")
    assert not ran(foreign)


def test_a_built_in_model_needs_no_trust(foreign):
    facts = foreign / "config.json"
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"model": "linear"}))
    assert load_model(foreign)
    assert not ran(foreign)


def test_an_experiment_that_a_run_left_is_refused(foreign, capsys):
    pytest.importorskip("fedbn_flower.sweeps")
    given = ["--experiment", str(foreign / "config.json"), "--rounds", "1"]
    assert cli.main(given) == 2
    assert refused(foreign, capsys, "client")
    assert cli.main([*given, "--client", "shared"]) == 2
    assert refused(foreign, capsys, "model")
    (config,) = parse([*given, "--client", "shared", "--model", "linear"])
    assert config.model == "linear"
    assert not ran(foreign)
    (config,) = parse([*given, "--trust-code", "true"])
    assert config.model == f"{foreign.parent}/evil.py:net"
    assert ran(foreign)


def test_code_that_the_command_line_names_is_run(foreign, monkeypatch):
    pytest.importorskip("fedbn_flower.sweeps")
    monkeypatch.chdir(foreign.parent)
    (config,) = parse(["--experiment", "run/config.json", "--model", "evil.py:net"])
    assert config.client == f"{foreign.parent}/evil.py:Mine"  # of the same file
    (config,) = parse(["--resume", "run", "--client", "evil.py:Mine", "--rounds", "2"])
    assert (config.rounds, config.client) == (2, f"{foreign.parent}/evil.py:Mine")


@pytest.mark.slow
def test_to_resume_is_to_ask_for_what_the_folder_names(foreign):
    assert simulate(resume=foreign, rounds=2, progress=False).summary["rounds"] == 2
    assert ran(foreign)


@pytest.mark.parametrize(
    "facts",
    [
        {"seed": [0, 1], "runs": [{"client": ["fedbn", "fedper+{code}:Mine"]}]},
        {"search": {"model": "cnn,{code}:net"}},
    ],
)
def test_tables_and_choices_are_refused(foreign, tmp_path, capsys, facts):
    pytest.importorskip("fedbn_flower.sweeps")
    file = tmp_path / "e.json"
    file.write_text(json.dumps(facts).replace("{code}", f"{tmp_path}/evil.py"))
    assert cli.main(["--experiment", str(file)]) == 2
    assert f"is code that '{file}' names" in capsys.readouterr().err
    assert not ran(foreign)


def test_ones_own_toml_is_as_one_wrote_it(foreign, tmp_path):
    pytest.importorskip("fedbn_flower.sweeps")
    (tmp_path / "e.toml").write_text(f'model = "{tmp_path}/evil.py:net"\n')
    (config,) = parse(["--experiment", str(tmp_path / "e.toml")])
    assert config.model.endswith("evil.py:net")


def test_a_report_runs_nothing(foreign):
    """The command has all that the folder says; the settings of code are given whatever they are."""
    facts = json.loads((foreign / "config.json").read_text()) | {"scale": 0.5}
    words = command_of(facts)
    assert words[words.index("--model") + 1] == f"{foreign.parent}/evil.py:net"
    assert words[words.index("--scale") + 1] == "0.5"
    assert "--min-replies" not in words  # of the built-in strategy, and its default
    assert not ran(foreign)


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("strategy", "fedavg", set()),
        ("strategy", "package.module:Rule", {"package.module"}),
        ("client", "fedbn+a+b/c.py:Mine", {"a+b/c.py"}),
        ("model", "Net@3", set()),
        ("dataset", "text:play.txt", set()),
        ("ray-address", "", set()),
        ("ray-address", "there:6379", {"there:6379"}),
    ],
)
def test_what_is_code(key, value, code):
    assert code_in(key, value) == code


def test_the_flag_is_true_or_false(tmp_path, capsys):
    pytest.importorskip("fedbn_flower.sweeps")
    file = tmp_path / "e.json"
    file.write_text("{}")
    assert cli.main(["--trust-code", "yes", "--experiment", str(file)]) == 2
    assert capsys.readouterr().err == "error: trust-code: 'yes' is not allowed; expected true or false\n"
