"""Experiments from flags and files: which runs they stand for, and what is refused."""

import json
import shlex

import pytest

from fedbn_flower.cli.parser import parse, parse_command_line
from fedbn_flower.core.errors import UserError
from fedbn_flower.results.progress import cell_name
from fedbn_flower.sweeps.experiment import Experiment, swept_keys

from ..refusal import one_line


def names(arguments):
    job = parse_command_line(shlex.split(arguments))
    keys = swept_keys(job.sweep, job.configs)
    return [cell_name(config, keys) for config in job.configs]


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes an experiment file into the current directory, and gives its name."""
    monkeypatch.chdir(tmp_path)

    def write(text, name="e.toml"):
        (tmp_path / name).write_text(text)
        return name

    return write


def test_every_value_goes_with_every_other_and_seeds_vary_fastest():
    assert names("--sweep client-lr=0.1,1 --seed 0,1 --client shared,fedbn") == [
        "fedyogi-shared-plain-client-lr=0.1-seed0",
        "fedyogi-shared-plain-client-lr=0.1-seed1",
        "fedyogi-shared-plain-client-lr=1.0-seed0",
        "fedyogi-shared-plain-client-lr=1.0-seed1",
        "fedyogi-fedbn-plain-client-lr=0.1-seed0",
        "fedyogi-fedbn-plain-client-lr=0.1-seed1",
        "fedyogi-fedbn-plain-client-lr=1.0-seed0",
        "fedyogi-fedbn-plain-client-lr=1.0-seed1",
    ]


def test_runs_that_come_to_the_same_are_one():
    """FedAvg has no tau; 0.1 and 1e-1 are one number."""
    assert names("--strategy fedavg,fedyogi --sweep tau=0.1,0.2") == [
        "fedavg-fedbn-plain-seed0",
        "fedyogi-fedbn-plain-tau=0.1-seed0",
        "fedyogi-fedbn-plain-tau=0.2-seed0",
    ]
    assert len(parse(["--sweep", "client-lr=0.1,1e-1"])) == 1


def test_semicolons_separate_values_with_commas_and_names_are_fit_for_folders():
    found = names("--sweep 'partition=silos:0-4,5-9;iid' --sweep dataset=digits,/a/b,/a_b,a:b,a~b")
    middles = [name.removeprefix("fedyogi-fedbn-plain-").removesuffix("-seed0") for name in found]
    assert [m for m in middles if "dataset=digits" in m] == [
        "partition=silos~0-4,5-9-dataset=digits",
        "partition=iid-dataset=digits",
    ]
    assert len(set(found)) == 10  # /a/b and /a_b, a:b and a~b stay apart
    assert not any("/" in name for name in found)


def test_a_list_of_one_is_a_sweep_and_one_value_is_not():
    assert parse_command_line(["--sweep", "client-lr=0.1"]).sweep
    assert not parse_command_line(["--client-lr", "0.1"]).sweep
    assert parse_command_line(["--seed", "0,1"]).sweep


def test_a_file_says_what_flags_say(written):
    path = written('strategy = ["fedavg", "fedyogi"]\nrounds = 3\nsoftmax-output = true\nseed = [0, 1]\n')
    flags = "--strategy fedavg,fedyogi --rounds 3 --softmax-output true --seed 0,1"
    assert parse(["--experiment", path]) == parse(shlex.split(flags))


def test_flags_go_before_the_file_in_all_its_runs(written):
    path = written('rounds = 3\n[[runs]]\nclient = "fedavg"\nrounds = 4\n[[runs]]\nclient = ["fedbn"]\n')
    assert [(c.client, c.rounds) for c in parse(["--experiment", path])] == [("shared", 4), ("fedbn", 3)]
    assert [c.rounds for c in parse(["--experiment", path, "--rounds", "5"])] == [5, 5]
    assert [c.client for c in parse(["--experiment", path, "--client", "fedbn", "--rounds", "5"])] == [
        "fedbn"
    ]
    assert [c.rounds for c in parse(["--experiment", path, "--sweep", "rounds=1,2"])] == [1, 2, 1, 2]


def test_a_further_tables_key_is_in_a_name_only_where_names_would_be_the_same(written):
    path = written(
        '[[runs]]\nstrategy = "fedavg"\nlocal-epochs = 1\n'
        '[[runs]]\nstrategy = "fedyogi"\nbias-correction = false\n[[runs]]\nstrategy = "fedyogi"\n'
    )
    assert names(f"--experiment {path}") == [
        "fedavg-fedbn-plain-seed0",
        "fedyogi-fedbn-plain-bias-correction=false-seed0",
        "fedyogi-fedbn-plain-bias-correction=true-seed0",
    ]


def test_what_a_run_left_is_an_experiment(configured, written):
    """Not where it was written, nor what it ran on."""
    config = configured(client_lr=0.5, seed=3, run_dir="somewhere", memory_name="mine")
    facts = {"versions": {}, "shape": "shape:1:2", "data": "x", "client-names": []}
    path = written(json.dumps(config.to_user_config() | facts), "config.json")
    (found,) = parse(["--experiment", path])
    assert found == config.model_copy(update={"run_dir": "auto"})


def test_what_a_sweep_keeps_stands_for_the_same_runs(written):
    text = 'rounds = 3\nseed = [0, 1]\n[[runs]]\nclient = ["fedavg", "silobn"]\n[[runs]]\nlocal-epochs = 1\n'
    job = parse_command_line(["--experiment", written(text), "--run-dir", "here"])
    kept = job.sweep.as_given()
    assert "run-dir" not in kept
    again = Experiment.of(json.loads(json.dumps(kept))).overridden({"run-dir": "here"})
    assert again.configurations() == job.configs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounds = 0", "e.toml: rounds: '0' is not allowed; expected a whole number >= 1"),
        ("rounds = true", "e.toml: rounds: 'true' is not allowed"),
        ("client-lr = false", "e.toml: client-lr: 'false' is not allowed"),
        ("rounds = [3, 0]", "e.toml: rounds: '0' is not allowed"),
        ("softmax-output = 3", "e.toml: softmax-output: '3' is not allowed; expected true or false"),
        ("tua = 1", "e.toml: configuration: unknown name 'tua' (did you mean 'tau'?)"),
        ("seed = []", "e.toml: seed: missing; expected at least one value"),
        ("seed = [[1]]", "e.toml: seed: [1] is not allowed; expected text, a number, true or false, or a"),
        ("rounds = 1979-05-27", "e.toml: rounds: datetime.date(1979, 5, 27) is not allowed"),
        ("runs = 3", "e.toml: runs: 3 is not allowed; expected tables of keys"),
        ('[[runs]]\nrun-dir = "x"', "e.toml: run-dir: 'x' is not allowed; expected one value for all runs"),
        ("workers = [1, 2]", "e.toml: workers: [1, 2] is not allowed; expected one value for all runs"),
        ('resume = "x"', "e.toml: resume: 'x' is not allowed; expected it on the command line"),
        ("rounds = = 1", "experiment: 'e.toml' cannot be read (Invalid value"),
        ('strategy = "fedavg"\ntau = 1', "e.toml: tau: 1 is not used by strategy 'fedavg'"),
        # a run's own key must be of use in that run
        ('[[runs]]\nstrategy = "fedavg"\ntau = 1\n[[runs]]\nstrategy = "fedyogi"', "e.toml: tau: 1 is not"),
    ],
)
def test_a_mistake_in_a_file_names_the_file_and_the_key(written, text, message):
    with one_line(message):
        parse(["--experiment", written(text)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--sweep tau", "sweep: 'tau' is not allowed; expected KEY=V1,V2"),
        ("--sweep =1", "sweep: '=1' is not allowed"),
        ("--sweep tau=1 --tau 2", "tau: given twice, the second time in sweep"),
        ("--sweep tau=1 --sweep tau=2", "tau: given twice, the second time in sweep"),
        ("--sweep rounds=1,0", "rounds: '0' is not allowed"),
        ("--sweep run-dir=a,b", "run-dir: ['a', 'b'] is not allowed; expected one value for all runs"),
        ("--strategy fedavg --sweep tau=1,2", "tau: 1 is not used by strategy 'fedavg'"),
        ("--experiment nowhere.toml", "experiment: 'nowhere.toml' cannot be read ([Errno 2]"),
        ("--experiment a --experiment b", "--experiment: given twice"),
        ("--experiment e.toml --rounds 0", "rounds: '0' is not allowed"),
    ],
)
def test_a_mistake_in_flags_is_one_line(written, arguments, message):
    written("rounds = 3")
    with one_line(message):
        parse(shlex.split(arguments))


def test_a_nul_character_is_one_line():
    with one_line("init: 'a\\x00b' is not allowed; expected text without NUL"):
        Experiment.of({"init": "a\0b"})


def test_a_file_of_another_kind_says_which_are_read(tmp_path):
    (tmp_path / "e.ini").write_text("rounds: 3")
    with pytest.raises(
        UserError, match="e.ini' is not allowed; expected a TOML or YAML file, or a run's config.json$"
    ):
        parse(["--experiment", str(tmp_path / "e.ini")])
