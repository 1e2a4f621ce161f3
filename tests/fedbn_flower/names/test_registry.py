"""Algorithms by name, from a file, from a package: found, or told in one line why not."""

import pickle
import sys

import pytest

from clients import CLIENTS
from fedbn_flower.core.errors import UserError
from fedbn_flower.models.named import MODEL
from fedbn_flower.models.networks import mlp_bn
from fedbn_flower.names import APP, CLIENT, LOSS, OBJECTIVE, PROBLEM, STRATEGY, absolute, short
from strategies import FedAvg, FedMedian

RULES = """
from strategies import FedAvg, setting

class Slow(FedAvg):
    "A rule."
    _eta_ = 0.5

number = 3
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current directory, with a file of rules and a package in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    (tmp_path / "rules.py").write_text(RULES)
    package = tmp_path / f"package_{tmp_path.name.replace('-', '_')}"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "rules.py").write_text(f"from . import __name__ as own\n{RULES}")
    return tmp_path


def test_built_in_ones_by_name():
    assert STRATEGY.find("fedavg") is FedAvg
    assert CLIENT.find("fedbn") is CLIENTS["fedbn"]
    assert MODEL.find("mlp-bn") is mlp_bn


@pytest.mark.parametrize("registry", [STRATEGY, CLIENT, OBJECTIVE, LOSS, PROBLEM, MODEL], ids=lambda r: r.key)
def test_every_built_in_one_is_of_its_kind_and_described_in_one_line(registry):
    """The tables of names hold text, which no type checker reads."""
    for value in registry.names.values():
        registry.check(value)
        first, *rest = value.__doc__.splitlines()
        assert first.endswith(".")
        assert not rest or not rest[0]


def test_a_file_is_loaded_once_whatever_its_path_is_called(here):
    found = STRATEGY.find("rules.py:Slow")
    assert issubclass(found, FedAvg)
    assert found()._eta_ == 0.5
    assert STRATEGY.find(f"{here}/rules.py:Slow") is found
    assert STRATEGY.find(f"../{here.name}/rules.py:Slow") is found
    assert pickle.loads(pickle.dumps(found)) is found
    assert "rules" not in sys.modules


def test_files_of_one_name_do_not_get_in_each_others_way(here):
    other = here / "elsewhere"
    other.mkdir()
    (other / "rules.py").write_text(RULES.replace("0.5", "0.25"))
    rates = [STRATEGY.find(name)()._eta_ for name in ("rules.py:Slow", "elsewhere/rules.py:Slow")]
    assert rates == [0.5, 0.25]


def test_a_package_under_the_current_directory_or_installed(here):
    package = next(here.glob("package_*")).name
    assert STRATEGY.find(f"{package}.rules:Slow")()._eta_ == 0.5
    assert STRATEGY.find("strategies:FedMedian") is FedMedian


def test_a_file_is_looked_for_here_and_then_in_the_apps_folder(here):
    assert absolute("examples/signsgd.py:SignSGD") == f"{APP}/examples/signsgd.py:SignSGD"
    (here / "examples").mkdir()
    (here / "examples" / "signsgd.py").write_text(RULES.replace("Slow", "SignSGD"))
    assert absolute("examples/signsgd.py:SignSGD") == f"{here}/examples/signsgd.py:SignSGD"
    assert STRATEGY.find("examples/signsgd.py:SignSGD")()._eta_ == 0.5


def test_names_for_tables_and_folders():
    assert [short(n) for n in ("fedavg", "a/b/rules.py:Slow", "package.rules:Slow", "rules:Slow")] == [
        "fedavg", "rules.Slow", "rules.Slow", "rules.Slow",
    ]  # fmt: skip
    assert absolute("fedavg") == "fedavg"
    assert absolute("strategies:FedMedian") == "strategies:FedMedian"


@pytest.mark.parametrize(
    ("name", "output"),
    [
        (
            "nowhere.py:Slow",
            r"'nowhere.py:Slow' is not allowed; expected a file: there is no nowhere.py in /.* or",
        ),
        ("/nowhere.py:Slow", r"there is no /nowhere.py$"),
        ("rules.py:Slwo", r"unknown name 'Slwo' \(did you mean 'Slow'\?\); expected one of Slow$"),
        ("rules.py:number", "expected a subclass of PseudoGradientStrategy$"),
        ("empty.py:Slow", "unknown name 'Slow'; expected a subclass of PseudoGradientStrategy in empty.py$"),
        ("clients:FedBNClient", "expected a subclass of PseudoGradientStrategy$"),
        (
            "raises.py:Slow",
            r"cannot be loaded: ZeroDivisionError: division by zero \(/.*raises.py, line 2\)$",
        ),
        ("broken.py:Slow", r"cannot be loaded: SyntaxError: invalid syntax \(/.*broken.py, line 1\)$"),
        ("exits.py:Slow", "cannot be loaded: SystemExit: 3 "),
        ("no.such.module:Slow", "cannot be loaded: ModuleNotFoundError: No module named 'no'$"),
        ("rules.py", "unknown name 'rules.py'; .*FILE.py:NAME or package.module:NAME$"),
        ("fedyog", r"did you mean 'fedyogi'\?"),
    ],
)
def test_what_cannot_be_had_is_one_line(here, name, output):
    (here / "empty.py").write_text("")
    (here / "raises.py").write_text("\n1 / 0\n")
    (here / "broken.py").write_text("this is no Python\n")
    (here / "exits.py").write_text("raise SystemExit(3)\n")
    with pytest.raises(UserError, match=rf"^strategy: .*{output}") as caught:
        STRATEGY.find(name)
    assert "\n" not in str(caught.value)


def test_a_file_that_was_mended_is_loaded(here):
    (here / "raises.py").write_text("1 / 0")
    for _ in range(2):
        with pytest.raises(UserError, match="division by zero"):
            STRATEGY.find("raises.py:Slow")
    assert not [name for name in sys.modules if "_fedbn_raises" in name]
    (here / "raises.py").write_text(RULES)
    assert STRATEGY.find("raises.py:Slow")()._eta_ == 0.5


def test_a_model_is_anything_that_can_be_called(here):
    (here / "models.py").write_text("def net(spec):\n    return spec\n\nnumber = 3\n")
    assert MODEL.find("models.py:net")(1) == 1
    with pytest.raises(UserError, match="model: 'models.py:number' is not allowed; expected a function"):
        MODEL.find("models.py:number")
