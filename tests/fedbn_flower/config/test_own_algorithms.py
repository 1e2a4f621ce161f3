"""Algorithms from a file outside the checkout: settings of their own, pairs, and runs that are resumed."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from fedbn_flower import Observer
from fedbn_flower.cli import main
from fedbn_flower.cli.parser import parse
from fedbn_flower.config.making import run_config
from fedbn_flower.core.errors import UserError
from fedbn_flower.names import STRATEGY
from fedbn_flower.server.federation import Federation

from ..runtime.test_simulation import Listening


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The file, in the current directory, which is not the checkout's."""
    monkeypatch.chdir(tmp_path)
    return str(shutil.copy(Path(__file__).with_name("own_algorithms.py"), tmp_path / "own.py"))


def run(cache_dir, *arguments):
    return main([*map(str, arguments), "--backend", "inline", "--cache-dir", str(cache_dir)])


@pytest.mark.slow
def test_its_run_is_resumed_from_another_folder_to_the_same_bits(own, cache_dir, tmp_path, monkeypatch):
    rule = ("--strategy", "own.py:Scaled", "--scale", 0.5, "--every", 2)
    assert run(cache_dir, *rule, "--rounds", 4, "--run-dir", "whole") == 0
    assert run(cache_dir, *rule, "--rounds", 1, "--run-dir", "parts") == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert run(cache_dir, "--resume", tmp_path / "parts", "--rounds", 4) == 0
    bits = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts")]
    assert bits[0] == bits[1]
    assert json.loads((tmp_path / "parts" / "config.json").read_text())["scale"] == 0.5


def test_a_rule_that_raises_in_a_round_ends_the_run_in_one_line(own, cache_dir, tmp_path, capsys):
    (line,) = [
        i for i, text in enumerate(Path(own).read_text().splitlines(), start=1) if "delta, None" in text
    ]
    small = ("--batch-size", 128, "--local-epochs", 1)
    assert run(cache_dir, "--strategy", "own.py:Raising", *small, "--run-dir", "run") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert "failed: strategy: " in error
    assert ":Raising' raised ValueError: all input arrays must have the same shape (" in error
    assert error.endswith(f"({own}, line {line})")
    assert len((tmp_path / "run" / "metrics.csv").read_text().splitlines()) == 2


def test_settings_arrive_at_an_objective_and_a_client(own, configured):
    chosen = {"client": "own.py:Partly", "objective": "own.py:Pull", "settings": "pull=0.25 report=7"}
    config = configured(**chosen, model="own.py:thin", rounds=1)
    grid = Listening(config)
    Federation(config).run(grid, [])
    trained = [m for m in grid.heard if m.metadata.message_type == "train"]
    sent, replied = trained[:2], trained[2:]
    for message in sent:
        output = message.content.config_records["config"]
        assert {key: output[key] for key in ("pull", "report", "client-lr")} == {
            "pull": 0.25, "report": 7.0, "client-lr": 0.05,
        }  # fmt: skip
    assert [m.content.metric_records["metrics"]["told"] for m in replied] == [7.0, 7.0]


@pytest.mark.parametrize(
    "arguments",
    [
        "--strategy own.py:Half --objective own.py:Pull",
        "--strategy own.py:OtherHalf --objective own.py:Pull",
        "--strategy own.py:MyScaffold --objective scaffold",
        "--strategy own.py:MyScaffold",
    ],
)
def test_a_partner_is_named_as_it_was_given_by_its_class_or_by_its_base(own, arguments):
    (config,) = parse(arguments.split())
    assert config.strategy.startswith(own)  # for workers in other folders


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ("--strategy own.py:Half", "'plain' is not allowed; expected 'Pull', which goes with strategy"),
        ("--strategy own.py:MyScaffold --objective plain", "'plain' is not allowed; expected 'scaffold'"),
        ("--objective own.py:Pull --client-optimizer adam", "client-optimizer: 'adam' is not allowed"),
        ("--strategy own.py:Untyped", "its setting 'factor' has no type"),
        ("--strategy own.py:Listed", "its setting 'parts' is neither text, a number, true or false: [1]"),
        ("--strategy own.py:Reserved", "its setting 'run' must have another name, which is in use"),
        ("--strategy own.py:Confused", "it requires 'colour', which is no key of this run"),
        ("--strategy own.py:Alike --objective own.py:Pull", "have different defaults (0.5 or 0.0)"),
        ("--strategy own.py:Needy", "needed: missing; strategy"),
        ("--strategy own.py:Scaled,fedavg --pull 1", "--pull: unknown flag"),
        ("--strategy own.py:Scaled --tau 1", "tau: 1 is not used by strategy"),
        ("--strategy own.py:Scaled --scael 1", "--scael: unknown flag (did you mean --scale?)"),
        ("--strategy own.py:Scaled,./own.py:Scaled", "expected each value once"),
        ("--model own.py:number", None),
        ("--strategy own.py:Stepless", "expected a class with a server_step(delta, state, round)"),
        ("--strategy own.py:Roundless", "expected a class with a server_step(delta, state, round)"),
        ("--strategy own.py:Helpful", "its setting 'help' must have another name, which is in use"),
        ("--strategy own.py:Fragile", "raised KeyError: 'broken' ("),
        ("--client own.py:Misspelt", "keeps at home what the model does not have: 1.weigth"),
        ("--client own.py:Careless", "raised AttributeError: 'Sequential' object has no attribute 'head' ("),
        ("--model own.py:raises", "own.py:raises' raised RuntimeError: two lines ("),
        ("--model own.py:narrow", "output for two examples has the shape (2, 10), not (2, 3)"),
        ("--model own.py:pair", "output for two examples has the shape (2, 10), not a tuple"),
        ("--model own.py:frozen", "expected one with a trainable parameter"),
        ("--model own.py:brain", "has 1.weight of torch.float8_e4m3fn, which cannot be averaged"),
        ("--model own.py:imaginary", "has phase of torch.complex64, which cannot be averaged"),
        ("--model own.py:hollow", "has 1.weight of the device meta, which cannot be averaged"),
        ("--model own.py:sparse", "has edges of torch.sparse_coo, which cannot be averaged"),
        ("--model own.py:scripted", "returns an nn.Module, not an object of type RecursiveScriptModule"),
        ("--strategy=", "strategy: unknown name ''"),
        ("--client=", "client: unknown name ''"),
    ],
)
def test_what_does_not_go_is_one_line(own, arguments, output):
    if "," in arguments:
        pytest.importorskip("fedbn_flower.sweeps")
    with pytest.raises(UserError) as caught:
        Federation(parse(arguments.split())[0])
    assert "\n" not in str(caught.value)
    assert (output or "model: ") in str(caught.value)


def test_a_required_setting_and_equal_values_for_both(own):
    (config,) = parse(["--strategy", "own.py:Needy", "--needed", "2"])
    assert config.settings_for(STRATEGY.find("own.py:Needy"))["needed"] == 2.0
    (config,) = parse(["--strategy", "own.py:Alike", "--objective", "own.py:Pull", "--pull", "0.1"])
    assert dict(config.algorithm_settings)["pull"] == 0.1


def test_a_setting_may_be_nothing_which_is_auto(own):
    for arguments, bound, output in (
        ("", None, "auto"),
        ("--bound 2", 2.0, 2.0),
        ("--bound auto", None, "auto"),
    ):
        (config,) = parse(f"--strategy own.py:Bounded {arguments}".split())
        assert config.settings_for(STRATEGY.find("own.py:Bounded"))["bound"] == bound
        assert config.to_user_config()["bound"] == output
        assert run_config(config.to_user_config()) == config
        assert config.messages_for(STRATEGY.find("own.py:Bounded")).get("bound") == bound


def test_messages_carry_what_is_declared_and_nothing_else(configured):
    config = configured(strategy="feddyn", objective="feddyn", alpha=0.5, client_lr=0.25)
    grid = Listening(config)
    Federation(config).run(grid, [])
    sent = [m for m in grid.heard if not m.has_error() and "config" in m.content.config_records]
    keys = {m.metadata.message_type: dict(m.content.config_records["config"]) for m in sent}
    moment = {"run", "checkpoint-round", "server-round", "eval-splits"}
    assert keys["train"].keys() == moment | {"alpha", "client-lr"}
    assert (keys["train"]["alpha"], keys["train"]["client-lr"]) == (0.5, 0.25)
    assert keys["evaluate"].keys() == moment | {"classes", "held-out-cases"}


def test_the_strategy_receives_what_the_run_knows(configured):
    config = configured(strategy="scaffold", objective="scaffold", partition="iid", num_clients=5, seed=9,
                        fraction_train=0.5, mean="trimmed", trim=0.3, weighting="uniform")  # fmt: skip
    strategy = Federation(config).strategy
    assert (strategy.num_clients, strategy._seed_, strategy._mean_, strategy._trim_) == (5, 9, "trimmed", 0.3)
    assert (strategy.fraction_train, strategy.weighted_by_key, strategy.eta) == (0.5, None, 1.0)
    assert strategy.node_directory.ask


RULE = """
from fedbn_flower.strategies import FedAvg, setting

class Mine(FedAvg):
    "As FedAvg."
    {settings}

    def server_step(self, delta, state, round):
        return {step}
"""


@pytest.mark.slow
def test_a_file_that_was_edited_is_read_anew_by_the_next_run(run, tmp_path):
    """As in a notebook: its code and its settings, but not in the middle of a run."""
    rule = tmp_path / "edited.py"

    def edit(step, settings="pass"):
        rule.write_text(RULE.format(step=step, settings=settings))
        os.utime(rule, ns=(0, next(times)))

    def entries(**keys):
        return run(strategy="edited.py:Mine", rounds=1, **keys).model(client=0).state_dict()

    times = iter(range(10**9, 10**10, 10**9))
    edit("0 * delta")
    still = entries()
    edit("delta")
    moved = entries()
    assert any(not torch.equal(still[name], moved[name]) for name in moved)
    edit("self.share * delta", "share: float = setting(0.5, gt=0, description='share of the step')")
    half = run(strategy="edited.py:Mine", rounds=1, share=0.25)
    assert json.loads((half.folder / "config.json").read_text())["share"] == 0.25

    class Editor(Observer):
        def on_round(self, result):
            edit("1 / 0")

    run(strategy="edited.py:Mine", rounds=2, observers=[Editor()])


@pytest.mark.slow
def test_a_resumed_run_takes_the_file_as_it_is_then(run, tmp_path):
    rule = tmp_path / "edited.py"
    rule.write_text(RULE.format(step="0 * delta", settings="pass"))
    first = run(strategy="edited.py:Mine", client="shared", rounds=1)
    still = first.model().state_dict()
    rule.write_text(RULE.format(step="delta", settings="pass"))
    os.utime(rule, ns=(0, 10**9))
    moved = run(resume=first.folder).model().state_dict()
    assert not torch.equal(still["1.weight"], moved["1.weight"])
