"""``fedbn_flower.strategies`` and ``fedbn_flower.clients``, also where an app has packages of these names."""

import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = ("strategies", "clients")
SUBMODULES = ("strategies.messages.gate", "strategies.signature", "clients.losses", "clients.base")


@pytest.mark.parametrize("name", [*NAMES, *SUBMODULES])
def test_both_names_give_the_same_module(name):
    assert import_module(f"fedbn_flower.{name}") is import_module(name)


def test_what_neither_has_is_not_found():
    for name in ("strategies.nothing", "fedbn_flower.strategies.nothing"):
        with pytest.raises(ModuleNotFoundError, match=r"strategies\.nothing"):
            import_module(name)


@pytest.fixture(scope="module")
def installed(request, tmp_path_factory):
    """A folder with the project: as a checkout, a wheel and an app packed by Flower have it."""
    if request.param == "checkout":
        return ROOT
    folder = tmp_path_factory.mktemp("installed")
    links = shutil.ignore_patterns("*.pyc.*", *(NAMES if request.param == "packed by Flower" else ()))
    for package in ("fedbn_flower", *NAMES):
        shutil.copytree(ROOT / package, folder / package, ignore=links)
    return folder


def run(app, installed, code):
    """What an app prints whose own folder stands first on the path."""
    (app / "main.py").write_text(code)
    command = [sys.executable, "main.py"]
    done = subprocess.run(
        command, cwd=app, env={"PYTHONPATH": str(installed)}, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("installed", "first"),
    [
        ("checkout", "fedbn_flower.strategies.messages.gate"),
        ("wheel", "fedbn_flower.clients"),
        ("packed by Flower", "strategies.messages.gate"),
    ],
    indirect=["installed"],
)
def test_an_app_without_such_packages_has_one_class_under_both_names(installed, tmp_path, first):
    """Whatever it imports first, in a wheel as in a checkout. Their ground is one, too."""
    code = f"""
import pickle, sys
import {first}
import strategies.messages.gate, fedbn_flower.strategies.messages.gate as gate
import clients, fedbn_flower.clients
from fedbn_flower.core.ground import settings
from fedbn_flower.strategies import FedAvg

again = pickle.loads(pickle.dumps(FedAvg))
print(FedAvg is strategies.FedAvg, gate is strategies.messages.gate, again is FedAvg)
grounds = [name for name in sys.modules if name.endswith("ground.wire")]
print(*grounds, strategies.setting is clients.setting is settings.setting)
"""
    found = run(tmp_path, installed, code)
    assert found == ["True", "True", "True", "fedbn_flower.core.ground.wire", "True"]


OURS = """
from fedbn_flower.api import simulate
from fedbn_flower.clients import FedAvgClient
from fedbn_flower.strategies import FedAvg
"""
THEIRS = "import strategies, clients\n"
PRINT = "print(FedAvg.__module__, FedAvgClient.__module__, strategies.MINE, clients.MINE)\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("installed", "file", "imports"),
    [("checkout", "{}/__init__.py", OURS + THEIRS), ("packed by Flower", "{}.py", THEIRS + OURS)],
    indirect=["installed"],
)
def test_an_app_with_such_packages_has_its_own_and_ours(installed, tmp_path, file, imports):
    for name in NAMES:
        place = tmp_path / file.format(name)
        place.parent.mkdir(exist_ok=True)
        place.write_text(f"MINE = 'their-{name}'\n")
    assert run(tmp_path, installed, imports + PRINT) == [
        "fedbn_flower.strategies.rules.averaging",
        "fedbn_flower.clients.base",
        "their-strategies",
        "their-clients",
    ]
