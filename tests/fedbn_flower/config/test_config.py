"""The configuration: one truth, checked, the same words everywhere."""

import shlex

import pytest

from clients import OBJECTIVES
from fedbn_flower.cli.parser import parse
from fedbn_flower.config.making import run_config
from fedbn_flower.core.errors import UserError
from fedbn_flower.data.partition.spec import PartitionSpec
from strategies import STRATEGIES, FedDyn, FedNova, Scaffold


def test_the_contracts_command_line_is_understood():
    command = (
        "--strategy fedyogi --client fedbn --dataset ../shared/data/mnist --partition silos:0-4,5-9 "
        "--model mlp-bn --num-clients 2 --rounds 10 --local-epochs 2 --batch-size 128 --client-lr 0.001 "
        "--server-lr 0.01 --eval-model local --eval-data global --seed 0 --run-dir runs/demo"
    )
    (config,) = parse(command.split())
    settings = dict(config.algorithm_settings)
    assert (config.client_lr, settings["server-lr"], config.eval_model) == (0.001, 0.01, "local")
    assert settings["tau"] == 1e-3


def test_a_comma_makes_a_grid():
    configs = parse(["--strategy", "fedadam,fedyogi", "--client", "silobn,fedbn", "--seed", "0,1,2"])
    assert len({(c.strategy, c.client, c.seed) for c in configs}) == len(configs) == 12


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ("--strategy fedyog", ["strategy", "'fedyog'", "'fedyogi'", "fedadam"]),
        ("--client fedbm", ["client", "'fedbm'", "'fedbn'"]),
        ("--model mlp", ["model", "'mlp'", "mlp-bn"]),
        ("--objective plian", ["objective", "'plian'", "'plain'"]),
        ("--stratgy fedavg", ["--stratgy", "--strategy"]),
        ("--strategy fedavg,fedavg", ["strategy", "each value once"]),
        ("--client-lr nan", ["client-lr", "'nan'", "a number > 0"]),
        ("--client-lr abc", ["client-lr", "'abc'", "a number > 0"]),
        ("--server-lr inf", ["server-lr", "'inf'", "a number > 0"]),
        ("--beta-1 1", ["beta-1", "'1'", "[0, 1)"]),
        ("--tau 0", ["tau", "'0'", "a number > 0"]),
        ("--rounds 0", ["rounds", "'0'", "a whole number >= 1"]),
        ("--rounds 2.5", ["rounds", "'2.5'", "a whole number >= 1"]),
        ("--batch-size -1", ["batch-size", "'-1'", "a whole number >= 0"]),
        ("--seed 0,-1", ["seed", "'-1'", "whole number"]),
        ("--softmax-output maybe", ["softmax-output", "'maybe'", "true or false"]),
        ("--eval-model both", ["eval-model", "'both'", "'aggregated'", "'local'"]),
        ("--val-fraction 1", ["val-fraction", "'1'", "[0, 1)"]),
        ("--fraction-train 0", ["fraction-train", "0.0"]),
        ("--dataset digits --num-clients 3", ["num-clients", "3", "2, the number of silos"]),
        (
            "--partition dirichlet:0",
            ["partition", "'dirichlet:0'", "dirichlet:ALPHA with a number ALPHA > 0"],
        ),
        ("--partition dirichelt:0.3", ["partition", "(did you mean 'dirichlet'?)", "pathological:"]),
        ("--partition shards:0", ["partition", "'shards:0'", "shards:PER_CLIENT with a whole number >= 1"]),
        ("--partition dirichlet:nan", ["partition", "dirichlet:ALPHA"]),
        ("--partition iid:3", ["partition", "'iid:3'"]),
        ("--partition shards:two", ["partition", "'shards:two'"]),
        ("--partition silos:4-0,5", ["partition", "silos:0-4,5-9"]),
        ("--partition natural:", ["partition", "natural:COLUMN"]),
        ("--mean mode", ["mean", "'mode'", "'weighted'", "'median'", "'trimmed'"]),
        ("--mean trimmed --trim 0.5", ["trim", "'0.5'", "[0, 0.5)"]),
        ("--clip-update-norm -1", ["clip-update-norm", "'-1'", "a number >= 0"]),
        ("--max-num-examples -1", ["max-num-examples", "'-1'", "a number in [0, 2^53]"]),
        ("--max-num-examples 5 --weighting uniform", ["max-num-examples", "5", "0 with weighting 'uniform'"]),
        ("--node-timeout -1", ["node-timeout", "'-1'", "a number >= 0"]),
        ("--min-replies 0", ["min-replies", "'0'", "a whole number >= 1"]),
        ("--min-replies 5", ["min-replies", "5", "at most 4, the clients that train in a round"]),
        ("--partition iid --num-clients 10 --fraction-train 0.3 --min-replies 4", ["4", "at most 3"]),
        ("surplus", ["surplus", "unknown flag"]),
    ],
)
def test_a_mistake_is_one_line_that_names_key_value_and_what_is_allowed(arguments, parts):
    with pytest.raises(UserError) as caught:
        parse(arguments.split())
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "--strategy fedavg --tau 0.5",
            "tau: 0.5 is not used by strategy 'fedavg', client 'fedbn', objective 'plain' or loss 'auto'; "
            "it is a setting of fedadagrad, fedadam, fedyogi",
        ),
        (
            "--strategy fedavg,fednova --beta-2 0.9",
            "beta-2: 0.9 is not used by strategy 'fedavg', strategy 'fednova', client 'fedbn', objective "
            "'plain' or loss 'auto'; it is a setting of fedadam, fedams, fedyogi",
        ),
        ("--mu 0.1", "it is a setting of fedprox"),
        ("--alpha 0.1", "it is a setting of feddyn"),
        ("--trim 0.2", "trim: 0.2 is not used by mean 'weighted'; it is a setting of mean 'trimmed'"),
        (
            "--mean krum",
            "mean: 'krum' is not allowed; expected one of 'weighted', 'median', 'trimmed', 'krum:F'",
        ),
        ("--mean centered-clip:-1", "mean: 'centered-clip:-1' is not allowed"),
        (
            "--mean krum:1 --num-clients 4",
            "mean: 'krum:1' is not allowed; expected one of at most 4 answers, the clients that train in a "
            "round; it needs 5",
        ),
        ("--mean bulyan:1 --num-clients 12 --fraction-train 0.5", "at most 6 answers, the clients"),
        ("--settings tau", "settings: 'tau' is not allowed; expected KEY=VALUE ..., no key twice"),
        ("--settings 'tau=1 tau=2'", "settings: 'tau=1 tau=2' is not allowed"),
        ("--settings 'tau=\"1'", "settings: 'tau=\"1' is not allowed"),
        ("--settings tau=0", "tau: '0' is not allowed; expected a number > 0"),
        ("--settings rounds=3", "expected settings of algorithms; rounds is a key of the run"),
        ("--settings tau=1 --tau 2", "tau: given twice, the second time in settings"),
        ("--settings tua=1", "configuration: unknown name 'tua' (did you mean 'tau'?)"),
        ("--rounds 3 --rounds 4", "--rounds: given twice"),
        ("--rounds 3 --rounds=3", "--rounds: given twice"),
        ("--fast off --lockstep off", "--lockstep: given twice"),
        ("--strategy fedavg --strategy fedyogi", "--strategy: given twice"),
        ("--lockstep maybe", "fast: 'maybe' is not allowed; expected one of 'auto', 'off'"),
        ("--eta-l 0.1", "--eta-l: unknown flag"),
    ],
)
def test_a_setting_that_nothing_uses_or_that_is_given_twice_is_refused(arguments, message):
    with pytest.raises(UserError) as caught:
        parse(shlex.split(arguments))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("strategy", "cls"), STRATEGIES.items())
def test_a_strategy_takes_its_objective_along(strategy, cls):
    wanted = getattr(cls, "requires", {}).get("objective", {"plain"})
    client = {"fedpac": "fedpac", "fedtan": "shared"}.get(strategy, "fedbn")
    config = run_config({"strategy": strategy, "client": client})
    assert {config.objective} == {*wanted}
    assert run_config(config.to_user_config()) == config


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "--strategy feddyn --objective plain",
            "objective: 'plain' is not allowed; expected 'feddyn', which goes with strategy 'feddyn'",
        ),
        ("--strategy scaffold --objective fedprox", "expected 'scaffold', which goes with strategy"),
        (
            "--objective feddyn",
            "strategy: the default 'fedyogi' is not allowed; expected 'feddyn', which goes with objective",
        ),
        ("--objective scaffold --strategy feddyn", "expected 'feddyn', which goes with strategy"),
        ("--objective scaffold --strategy scaffold --client-optimizer adam", "client-optimizer: 'adam'"),
        ("--objective scaffold --strategy scaffold --client-momentum 0.9", "client-momentum: 0.9"),
        ("--strategy fednova --client-optimizer adam", "client-optimizer: 'adam'"),
        (
            "--strategy feddyn --objective feddyn --alpha 0",
            "alpha: '0' is not allowed; expected a number > 0",
        ),
        ("--objective fedprox --mu -1", "mu: '-1' is not allowed; expected a number >= 0"),
    ],
)
def test_half_a_pair_is_refused(arguments, message):
    with pytest.raises(UserError) as caught:
        parse(arguments.split())
    assert message in str(caught.value)


def test_a_setting_that_some_cell_uses_goes_there():
    configs = parse(
        ["--strategy", "fedavg,fedyogi", "--objective", "sgd,fedprox", "--tau", "0.5", "--mu", "0.1"]
    )
    found = [(c.strategy, c.objective, *map(dict(c.algorithm_settings).get, ("tau", "mu"))) for c in configs]
    assert found == [
        ("fedavg", "plain", None, None),
        ("fedavg", "fedprox", None, 0.1),
        ("fedyogi", "plain", 0.5, None),
        ("fedyogi", "fedprox", 0.5, 0.1),
    ]


def test_a_setting_that_is_not_given_has_its_declared_default():
    """Of FedAdagrad: its own in place of what it inherits."""
    settings = dict(run_config({"strategy": "fedadagrad", "tau": "auto"}).algorithm_settings)
    assert (settings["beta-1"], settings["bias-correction"], settings["tau"]) == (0.0, False, 1e-3)
    assert "beta-2" not in settings


def test_the_two_halves_of_a_pair_get_the_same_value():
    config = run_config({"strategy": "feddyn", "objective": "feddyn", "alpha": 0.5, "num-clients": 2})
    assert config.settings_for(FedDyn)["alpha"] == 0.5
    assert config.settings_for(OBJECTIVES["feddyn"]) == config.messages_for(OBJECTIVES["feddyn"])
    assert config.messages_for(OBJECTIVES["feddyn"]) == {"alpha": 0.5}


def test_a_setting_that_the_run_has_a_key_for_takes_the_runs_value():
    config = run_config({"strategy": "fednova", "client-momentum": 0.9, "seed": 3})
    settings = config.settings_for(FedNova)
    assert (settings["client_momentum"], settings["_seed_"]) == (0.9, 3)
    assert not {"client-momentum", "seed"} & dict(config.algorithm_settings).keys()
    pair = {"strategy": "scaffold", "objective": "scaffold"}
    config = run_config({**pair, "partition": "iid", "num-clients": 7})
    assert config.settings_for(Scaffold)["num_clients"] == 7


def test_another_word_for_a_key():
    """Flower fills in ``auto`` for what is listed."""
    assert [run_config({"lockstep": v}).fast for v in ("off", "auto")] == ["off", "auto"]
    assert run_config({"fast": "off", "lockstep": "auto"}).fast == "off"
    assert run_config({"lockstep": "off", "fast": "auto"}).fast == "off"
    assert [parse(f"{flag} off".split())[0].fast for flag in ("--fast", "--lockstep")] == ["off"] * 2


def test_values_arrive_as_flower_sends_them():
    """Flower does not check types: ``client-lr=1`` arrives as an int."""
    config = run_config({"client-lr": 1, "server-lr": 1, "bias-correction": False, "rounds": 3})
    settings = dict(config.algorithm_settings)
    assert (config.client_lr, settings["server-lr"], settings["bias-correction"]) == (1.0, 1.0, False)
    again = run_config(config.to_user_config())
    assert again == config
    assert hash(again) == hash(config)


def test_silos_are_ranges_and_sums():
    assert PartitionSpec.parse("silos:0-2+7,3").argument == (frozenset({0, 1, 2, 7}), frozenset({3}))
