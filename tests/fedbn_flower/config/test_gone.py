"""Former keys: refused with its form wherever they come from."""

import hashlib
import json

import pytest

from fedbn_flower import UserError, simulate
from fedbn_flower.cli.parser import parse_command_line
from fedbn_flower.clients import OBJECTIVES
from fedbn_flower.config.conflicts import of_requirements
from fedbn_flower.config.gone import GONE, in_new_keys
from fedbn_flower.config.keys import RUN_KEYS
from fedbn_flower.config.making import run_config
from fedbn_flower.config.named_algorithms import Named
from fedbn_flower.site.memory_folder import signature

FORMS = [
    ("client-lr-decay", 0.9, "client-lr-schedule 'exponential:0.9'"),
    ("client-lr-decay", 1.0, "client-lr-schedule 'constant'"),
    ("target-accuracy", 0.95, "target 'accuracy=0.95'"),
    ("target-accuracy", 0, "target 'none'"),
    ("tensorboard", True, "track 'tensorboard'"),
    ("tensorboard", False, "track 'none'"),
]


@pytest.mark.parametrize(("key", "value", "new"), FORMS)
def test_each_is_refused_with_the_new_form_wherever_it_is_given(key, value, new, tmp_path):
    pytest.importorskip("fedbn_flower.sweeps")
    text = str(value).lower()
    file = tmp_path / "mine.toml"
    file.write_text(f"rounds = 2\n{key} = {json.dumps(value)}\n")
    ways = {
        "flag": lambda: parse_command_line([f"--{key}", text]),
        "flag with =": lambda: parse_command_line([f"--{key}={text}", "--rounds", "2"]),
        "resume": lambda: parse_command_line(["--resume", "no-folder", f"--{key}", text]),
        "sweep": lambda: parse_command_line(["--sweep", f"{key}={text}"]),
        "settings": lambda: run_config({"settings": f"{key}={text}"}),
        "run config": lambda: run_config({key: value}),
        "Python": lambda: simulate(**{key.replace("-", "_"): value}),
        "Python, resumed": lambda: simulate(resume=tmp_path, **{key.replace("-", "_"): value}),
        "TOML": lambda: parse_command_line(["--experiment", str(file)]),
    }
    for way, give in ways.items():
        with pytest.raises(UserError) as caught:
            give()
        where = f"{file}: " if way == "TOML" else ""
        assert str(caught.value) == f"{where}{key}: gone; write {new}", way


@pytest.mark.parametrize("values", ["0.9..1", "0.9,1"])
def test_a_search_is_refused_with_each_value_in_the_new_form(values):
    pytest.importorskip("fedbn_flower.search")
    with pytest.raises(UserError) as caught:
        parse_command_line(["--search", f"client-lr-decay={values}", "--val-fraction", "0.1"])
    new = "client-lr-schedule 'exponential:0.9,constant'"
    assert str(caught.value) == f"client-lr-decay: gone; write {new}"


def test_a_run_configuration_that_lists_them_without_a_value_is_none_with_them():
    """As `pyproject.toml` does, without which Flower would refuse them, without the new form."""
    assert run_config(dict.fromkeys(GONE, "auto")) == run_config({})


@pytest.mark.parametrize(("key", "value", "new"), FORMS)
def test_the_new_form_is_what_a_stored_configuration_is_read_as(key, value, new):
    replacement, form = new.split()
    assert in_new_keys({key: value, "rounds": 3}) == {replacement: form.strip("'"), "rounds": 3}
    assert in_new_keys({key: [value, value]}) == {replacement: [form.strip("'")] * 2}
    assert replacement in RUN_KEYS
    assert key not in RUN_KEYS
    if key == "tensorboard":
        pytest.importorskip("fedbn_flower.trackers")
    assert run_config({replacement: form.strip("'")})


def test_a_stored_value_of_the_other_key_stays():
    stored = {"track": "mlflow", "tensorboard": True, "target": "f1=0.5", "target-accuracy": 0.0}
    assert in_new_keys(stored) == {"track": "mlflow", "target": "f1=0.5"}


@pytest.mark.parametrize("runs", [5, [5], {"client": "fedavg"}])
def test_stored_tables_that_are_none_are_refused_as_in_any_file(runs, tmp_path):
    pytest.importorskip("fedbn_flower.sweeps")
    file = tmp_path / "experiment.json"
    file.write_text(json.dumps({"rounds": 2, "runs": runs}))
    with pytest.raises(UserError, match="is not allowed; expected tables of keys"):
        parse_command_line(["--experiment", str(file)])


def test_stored_tables_are_read_in_the_new_keys(tmp_path):
    pytest.importorskip("fedbn_flower.sweeps")
    file = tmp_path / "experiment.json"
    runs = [{"client-lr-decay": decay, "client": "fedavg"} for decay in ("0.5", "1.0")]
    file.write_text(json.dumps({"rounds": 2, "target-accuracy": 0.5, "runs": runs}))
    job = parse_command_line(["--experiment", str(file)])
    found = [(config.client_lr_schedule, config.target) for config in job.configs]
    assert found == [("exponential:0.5", "accuracy=0.5"), ("constant", "accuracy=0.5")]


# ---- a former name -----------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["--objective sgd,fedprox", "--sweep objective=sgd,fedprox"])
def test_sgd_is_the_plain_objective(words):
    pytest.importorskip("fedbn_flower.sweeps")
    found = parse_command_line([*words.split(), "--mu", "0.1"]).configs
    assert [config.objective for config in found] == ["plain", "fedprox"]
    assert run_config({"objective": "sgd"}) == run_config({"objective": "plain"}) == run_config({})


def test_the_client_that_keeps_nothing_is_shared_whatever_it_was_called():
    pytest.importorskip("fedbn_flower.sweeps")
    found = parse_command_line(["--client", "fedavg,silobn"]).configs
    assert [config.client for config in found] == ["shared", "silobn"]
    assert run_config({"client": "fedavg"}) == run_config({"client": "shared"})


def test_a_list_with_both_names_has_a_value_twice():
    pytest.importorskip("fedbn_flower.sweeps")
    with pytest.raises(UserError, match="objective: .* expected each value once"):
        parse_command_line(["--objective", "sgd,plain"])


def test_what_requires_the_former_name_has_it():
    class Rule:
        requires = {"objective": {"sgd"}}

    plain = Named("objective", "plain", OBJECTIVES["plain"], True)
    assert not [*of_requirements([Named("strategy", "rule", Rule, False), plain], {"objective": "plain"})]


def test_memories_of_the_former_name_fit():
    """By the hash that version 0.2.0 wrote."""
    expected = hashlib.sha256(json.dumps(["", "fedbn", "sgd", []]).encode()).hexdigest()
    assert signature("", "fedbn", "plain", {}) == expected
    expected = hashlib.sha256(json.dumps(["", "fedavg", "scaffold", []]).encode()).hexdigest()
    assert signature("", "shared", "scaffold", {}) == expected
