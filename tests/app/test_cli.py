"""The command: its help, its list, its exit status, its door."""

import subprocess
import sys
import tomllib

import pytest

from fedbn_flower import cli
from fedbn_flower.arguments import parse
from fedbn_flower.registry import APP


def help_of(capsys, arguments):
    """Section title -> the flags in it."""
    with pytest.raises(SystemExit) as ended:
        parse([*arguments.split(), "--help"])
    assert ended.value.code == 0
    sections, title = {}, ""
    for line in capsys.readouterr().out.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            title = line[:-1]
        elif line.startswith("  --"):
            sections.setdefault(title, []).append(line.split()[0])
    return sections


def test_help_shows_what_belongs_to_the_named_algorithms_first(capsys):
    sections = help_of(capsys, "--strategy feddyn --objective fedprox,feddyn")
    titles = list(sections)
    assert titles[1:4] == ["strategy feddyn", "objective fedprox", "Every strategy"]
    assert sections["strategy feddyn"] == ["--alpha"]  # and not again under the objective
    assert sections["objective fedprox"] == ["--mu"]
    assert "--mean" in sections["Every strategy"]
    assert titles[-1] == "Settings of other algorithms"
    assert {"--tau", "--beta-2", "--server-lr"} <= set(sections[titles[-1]])
    assert "--rounds" in sections["What runs"]
    flags = [flag for section in sections.values() for flag in section]
    assert len(set(flags)) == len(flags)


def test_help_knows_the_settings_of_a_file(capsys):
    sections = help_of(capsys, "--strategy examples/signsgd.py:SignSGD")
    assert sections["strategy signsgd.SignSGD"] == ["--server-lr", "--decay"]


def test_every_name_is_listed_with_a_line_on_it(capsys):
    assert cli.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        "client     fedbn        Keeps every BatchNorm entry at home and shares everything else"
        in "\n".join(lines)
    )
    assert all(len(line.split()) > 2 for line in lines)


def test_a_mistake_is_one_line_and_status_2(capsys):
    assert cli.main(["--strategy", "fedavg", "--tau", "0.5"]) == 2
    assert capsys.readouterr().err == (
        "error: tau: 0.5 is not used by strategy 'fedavg', client 'fedbn' or objective 'sgd'; "
        "it is a setting of fedadagrad, fedadam, fedyogi\n"
    )


def test_the_installed_command_is_main(tmp_path):
    """What a console script does, in a process of its own in a folder that is not the checkout."""
    scripts = tomllib.loads((APP / "pyproject.toml").read_text())["project"]["scripts"]
    module, function = scripts["fedbn-sim"].split(":")
    code = f"import sys; sys.path[0] = {str(APP)!r}; from {module} import {function}; sys.exit({function}())"
    command = [sys.executable, "-c", code, "--strategy", "fedyog"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 2
    assert result.stderr.startswith("error: strategy: unknown name 'fedyog' (did you mean 'fedyogi'?)")
