"""An app of one's own: what `fedbn-sim new` writes is what Flower and a site take; test_wheel.py runs it."""

import tomllib
from importlib import import_module

import pytest

from fedbn_flower.cli import main
from fedbn_flower.config.named_algorithms import keys_for_flower as all_keys
from fedbn_flower.consortium.studies import run_digest, study_digest


@pytest.fixture
def app(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "my-study"]) == 0
    return tmp_path / "my-study"


def test_about_ten_files_with_every_key(app, monkeypatch):
    assert len([path for path in app.rglob("*") if path.is_file()]) == 11
    project = tomllib.loads((app / "pyproject.toml").read_text())
    flower = project["tool"]["flwr"]["app"]
    assert flower["config"] == all_keys()
    monkeypatch.chdir(app)
    study = tomllib.loads((app / "study.toml").read_text())
    assert study_digest(app / "study.toml") == run_digest(flower["config"] | study)
    assert not [path for path in app.rglob("*") if path.is_file() and "@" in path.read_text()]


def test_its_doors_are_ours(app, monkeypatch):
    monkeypatch.syspath_prepend(app)
    for end in ("server_app", "client_app"):
        assert import_module(f"my_study.{end}").app is import_module(f"fedbn_flower.{end}").app


@pytest.mark.parametrize(
    "name", ["my study", "../x", "My", "1x", "a;b", "numpy", "json", "class", "test", "tests", "fedbn-flower"]
)
def test_a_name_that_is_not_allowed_writes_nothing(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", name]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not [*tmp_path.iterdir()]


def test_no_folder_is_written_over(app, capsys):
    before = (app / "study.toml").read_text()
    assert main(["new", "my-study"]) == 2
    assert "of which there is no folder yet" in capsys.readouterr().err
    assert (app / "study.toml").read_text() == before
