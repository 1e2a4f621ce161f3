"""The configuration: one truth, checked, the same words everywhere."""

import pytest

from clients import OBJECTIVES
from fedbn_flower.cli.parser import parse
from fedbn_flower.config.making import run_config
from fedbn_flower.data.partition.spec import PartitionSpec
from strategies import STRATEGIES, FedDyn, FedNova, Scaffold


def test_the_contracts_command_line_is_understood():
    pytest.importorskip("fedbn_flower.files")
    command = (
        "--strategy fedyogi --client fedbn --dataset ../shared/data/mnist --partition silos:0-4,5-9 "
        "--model mlp-bn --num-clients 2 --rounds 10 --local-epochs 2 --batch-size 128 --client-lr 0.001 "
        "--server-lr 0.01 --eval-model local --eval-data global --seed 0 --run-dir runs/demo"
    )
    (config,) = parse(command.split())
    settings = dict(config.algorithm_settings)
    assert (config.client_lr, settings["server-lr"], config.eval_model) == (0.001, 0.01, "local")
    assert settings["tau"] == 1e-3


@pytest.mark.parametrize(("strategy", "cls"), STRATEGIES.items())
def test_a_strategy_takes_its_objective_along(strategy, cls):
    wanted = getattr(cls, "requires", {}).get("objective", {"plain"})
    client = {"fedpac": "fedpac", "fedtan": "shared"}.get(strategy, "fedbn")
    config = run_config({"strategy": strategy, "client": client})
    assert {config.objective} == {*wanted}
    given = config.to_user_config()
    assert run_config(given) == config
    assert str(run_config(given).to_user_config()) == str(given)  # so config.json, too: 0 is not 0.0


def test_a_setting_that_some_cell_uses_goes_there():
    pytest.importorskip("fedbn_flower.sweeps")
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


def test_silos_are_ranges_and_sums():
    assert PartitionSpec.parse("silos:0-2+7,3").argument == (frozenset({0, 1, 2, 7}), frozenset({3}))
