"""The configuration: one truth, checked, the same words everywhere."""

import pytest

from fedbn_flower.arguments import parse
from fedbn_flower.config import RunConfig
from fedbn_flower.errors import UserError
from fedbn_flower.partition_spec import PartitionSpec


def test_the_contracts_command_line_is_understood():
    command = (
        "--strategy fedyogi --client fedbn --dataset ../shared/data/mnist --partition silos:0-4,5-9 "
        "--model mlp-bn --num-clients 2 --rounds 10 --local-epochs 2 --batch-size 128 --client-lr 0.001 "
        "--server-lr 0.01 --eval-model local --eval-data global --seed 0 --run-dir runs/demo"
    )
    (config,) = parse(command.split()).configs
    settings = dict(config.algorithm_settings)
    assert (config.client_lr, settings["server-lr"], config.eval_model) == (0.001, 0.01, "local")
    assert settings["tau"] == 1e-3


def test_a_comma_makes_a_grid():
    configs = parse(["--strategy", "fedadam,fedyogi", "--client", "silobn,fedbn", "--seed", "0,1,2"]).configs
    assert len({(c.strategy, c.client, c.seed) for c in configs}) == len(configs) == 12


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ("--strategy fedyog", ["strategy", "'fedyog'", "'fedyogi'", "fedadam"]),
        ("--client fedbm", ["client", "'fedbm'", "'fedbn'"]),
        ("--model mlp", ["model", "'mlp'", "mlp-bn"]),
        ("--objective sdg", ["objective", "'sdg'", "'sgd'"]),
        ("--stratgy fedavg", ["--stratgy", "--strategy"]),
        ("--strategy fedavg,fedavg", ["strategy", "twice"]),
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
        ("--num-clients 3", ["num-clients", "3", "2, the number of silos"]),
        ("--partition dirichlet:0", ["partition", "'dirichlet:0'", "dirichlet:ALPHA"]),
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
        ("--min-replies 3", ["min-replies", "3", "at most 2, the clients that train in a round"]),
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


def test_values_arrive_as_flower_sends_them():
    """Flower does not check types: ``client-lr=1`` arrives as an int."""
    config = RunConfig.of({"client-lr": 1, "server-lr": 1, "bias-correction": False, "rounds": 3})
    settings = dict(config.algorithm_settings)
    assert (config.client_lr, settings["server-lr"], settings["bias-correction"]) == (1.0, 1.0, False)
    assert RunConfig.of(config.to_user_config()) == config


def test_silos_are_ranges_and_sums():
    assert PartitionSpec.parse("silos:0-2+7,3").argument == (frozenset({0, 1, 2, 7}), frozenset({3}))
