"""What a command line may not ask for is one line, which says what may be asked for."""

import shlex

import pytest

from fedbn_flower import UserError
from fedbn_flower.cli.parser import parse
from fedbn_flower.config.making import run_config

LISTS = "lists of values"
REFUSED = {
    "names that are not known, and what is suggested": [
        ("--epochs 2", "did you mean --local-epochs?"),
        ("--lr 0.1", "did you mean --client-lr?"),
        ("--lr=0.1", "did you mean --client-lr?"),
        ("--gpus 1", "did you mean --device?"),
        ("--early-stopping 3", "did you mean --patience?"),
        ("--clients 3", "did you mean --num-clients?"),
        ("--Num_Clients 3", "did you mean --num-clients?"),
        ("--epsilon 3", "FedAdam and FedYogi call it tau; of differential privacy it is dp-epsilon"),
        ("--noise-multiplier 1", "did you mean --dp-noise?"),
        ("--dropot 0.1", "did you mean --dropout?"),
        ("--zzzz 1", "unknown flag; see --help"),
        ("--client FedBN", "client: unknown name 'FedBN' (did you mean 'fedbn'?)"),
        ("--client FedBn+fedper", "client: unknown name 'FedBn' (did you mean 'fedbn'?)"),
        ("--strategy FedAvg", "strategy: unknown name 'FedAvg' (did you mean 'fedavg'?)"),
        ("--strategy FedProx", "strategy: unknown name 'FedProx' (it is objective 'fedprox'); expected"),
        ("--strategy fedmedian", "strategy: unknown name 'fedmedian' (strategy fedavg with mean median)"),
        ("--model CNN_BN", "model: unknown name 'CNN_BN' (did you mean 'cnn-bn'?)"),
        ("--settings lr=1", "configuration: unknown name 'lr' (did you mean 'client-lr'?)"),
    ],
    "values that are not allowed": [
        ("--strategy fedyog", "strategy", "'fedyog'", "'fedyogi'", "fedadam"),
        ("--client fedbm", "client", "'fedbm'", "'fedbn'"),
        ("--model mlp", "model", "'mlp'", "mlp-bn"),
        ("--objective plian", "objective", "'plian'", "'plain'"),
        ("--stratgy fedavg", "--stratgy", "--strategy"),
        ("--client-lr nan", "client-lr", "'nan'", "a number > 0"),
        ("--client-lr abc", "client-lr", "'abc'", "a number > 0"),
        ("--server-lr inf", "server-lr", "'inf'", "a number > 0"),
        ("--beta-1 1", "beta-1", "'1'", "[0, 1)"),
        ("--tau 0", "tau", "'0'", "a number > 0"),
        ("--rounds 0", "rounds", "'0'", "a whole number >= 1"),
        ("--rounds 2.5", "rounds", "'2.5'", "a whole number >= 1"),
        ("--batch-size -1", "batch-size", "'-1'", "a whole number >= 0"),
        ("--softmax-output maybe", "softmax-output", "'maybe'", "true or false"),
        ("--eval-model both", "eval-model", "'both'", "'aggregated'", "'local'"),
        ("--val-fraction 1", "val-fraction", "'1'", "[0, 1)"),
        ("--fraction-train 0", "fraction-train", "0.0"),
        ("--dataset digits --num-clients 3", "num-clients", "3", "2, the number of silos"),
        ("--partition dirichlet:0", "partition", "'dirichlet:0'", "dirichlet:ALPHA with a number ALPHA > 0"),
        ("--partition dirichelt:0.3", "partition", "(did you mean 'dirichlet'?)", "pathological:"),
        ("--partition shards:0", "partition", "'shards:0'", "shards:PER_CLIENT with a whole number >= 1"),
        ("--partition dirichlet:nan", "partition", "dirichlet:ALPHA"),
        ("--partition iid:3", "partition", "'iid:3'"),
        ("--partition shards:two", "partition", "'shards:two'"),
        ("--partition silos:4-0,5", "partition", "silos:0-4,5-9"),
        ("--partition natural:", "partition", "natural:COLUMN"),
        ("--mean mode", "mean", "'mode'", "'weighted'", "'median'", "'trimmed'"),
        ("--mean trimmed --trim 0.5", "trim", "'0.5'", "[0, 0.5)"),
        ("--clip-update-norm -1", "clip-update-norm", "'-1'", "a number >= 0"),
        ("--max-num-examples -1", "max-num-examples", "'-1'", "a number in [0, 2^53]"),
        ("--max-num-examples 5 --weighting uniform", "max-num-examples", "5", "0 with weighting 'uniform'"),
        ("--node-timeout -1", "node-timeout", "'-1'", "a number >= 0"),
        ("--min-replies 0", "min-replies", "'0'", "a whole number >= 1"),
        ("--min-replies 5", "min-replies", "5", "at most 4, the clients that train in a round"),
        ("--partition iid --num-clients 10 --fraction-train 0.3 --min-replies 4", "4", "at most 3"),
        ("surplus", "surplus", "unknown flag"),
    ],
    "settings that nothing uses, or that are given twice": [
        (
            "--strategy fedavg --tau 0.5",
            "tau: 0.5 is not used by strategy 'fedavg', client 'fedbn', objective 'plain' or loss 'auto'",
            "a setting of fedadagrad, fedadam, fedyogi",
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
            "'krum:1'",
            "at most 4 answers, the clients that train in a round; it needs 5",
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
        ("--lockstep maybe", "fast: 'maybe' is not allowed; expected one of 'auto', 'always', 'off'"),
        ("--eta-l 0.1", "--eta-l: unknown flag"),
    ],
    LISTS: [
        ("--sweep epochs=1,2", "unknown name 'epochs' (did you mean 'local-epochs'?); see --help"),
        ("--strategy fedavg,fedavg", "strategy", "each value once"),
        ("--seed 0,-1", "seed", "'-1'", "whole number"),
        (
            "--strategy fedavg,fednova --beta-2 0.9",
            "beta-2: 0.9 is not used by strategy 'fedavg', strategy 'fednova', client 'fedbn', objective "
            "'plain' or loss 'auto'; it is a setting of fedadam, fedams, fedyogi",
        ),
    ],
    "halves of a pair": [
        (
            "--strategy feddyn --objective plain",
            "objective: 'plain'",
            "'feddyn', which goes with strategy 'feddyn'",
        ),
        ("--strategy scaffold --objective fedprox", "expected 'scaffold', which goes with strategy"),
        ("--objective feddyn", "strategy: the default 'fedyogi'", "'feddyn', which goes with objective"),
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
    "schedules and optimisers": [
        (
            "--client-lr-schedule warmup:3+cosine --rounds 3",
            "expected a warm-up of fewer rounds than the run's 3",
        ),
        ("--server-lr-schedule exponential:1e300", "positive and finite; in round 10, the last, it is inf"),
        ("--client-lr-schedule step:1:1e-90", "in round 10, the last, it is 0.0"),
        (
            "--server-lr-schedule cosine --strategy feddyn --objective feddyn",
            "expected 'constant' with strategy 'feddyn', which has no server-lr",
        ),
        ("--lr-schedule cosine", "--lr-schedule: unknown flag (did you mean --client-lr-schedule?)"),
        ("--client-optimizer AdamW", "client-optimizer: unknown name 'AdamW' (did you mean 'adamw'?)"),
        ("--client-optimizer lbfgs", "'lbfgs'", "expected another one: LBFGS computes the loss several"),
        ("--client-optimizer adamw:beta=1", "'adamw:beta=1'", "expected arguments of adamw: amsgrad, betas"),
        ("--client-optimizer adamw:weight_decay=0.1", "of the optimiser under its key, weight-decay"),
        ("--client-optimizer sgd:nesterov=true", "what torch.optim.SGD takes: Nesterov momentum requires a"),
        (
            "--client-optimizer sgd:nesterov=true --client-momentum 0.9 --strategy fednova",
            "client-optimizer: 'sgd:nesterov=true' is not allowed; expected 'sgd', which goes with strategy",
        ),
    ],
}
"""By what is wrong, arguments, each with parts of its line."""


@pytest.mark.parametrize("wrong", REFUSED)
def test_it_is_one_line(wrong):
    if wrong == LISTS:
        pytest.importorskip("fedbn_flower.sweeps")
    for arguments, *parts in REFUSED[wrong]:
        with pytest.raises(UserError) as caught:
            parse(shlex.split(arguments))
        message = str(caught.value)
        assert "\n" not in message, arguments
        assert all(part in message for part in parts), (arguments, message)


PRIVATE = {"dp": "client", "dp-epsilon": 8, "dp-delta": 1e-3}
SHAPE = "shape:1x8x8:10"
VALUES = [
    ({"stragglers": 1.1}, "stragglers: 1.1 is not allowed; expected a number in [0, 1]"),
    ({"dropout": 1}, "dropout: 1 is not allowed; expected a number in [0, 1)"),
    ({"drop-stragglers": "some"}, "drop-stragglers: 'some' is not allowed; expected true or false"),
    ({"stragglers": 1, "drop-stragglers": True}, "stragglers: 1.0 is not allowed; expected less than 1 with"),
    *(
        ({"availability": text}, f"availability: {text!r} is not allowed; expected always, cycle:PERIOD")
        for text in (
            "cycle",
            "cycle:5",
            "cycle:5,6",
            "cycle:5,0",
            "cycle:a,b",
            "cycle:1,1,1",
            f"cycle:{2**63},1",
        )
    ),
    ({"devices": "lognormal"}, "devices: 'lognormal' is not allowed; expected none, uniform, lognormal:S"),
    ({"devices": "lognormal:-1"}, "devices: 'lognormal:-1' is not allowed"),
    ({"devices": "lognormal:inf"}, "devices: 'lognormal:inf' is not allowed"),
    ({"round-deadline": 3}, "round-deadline: 3.0 is not allowed; expected 0 without devices"),
    ({"round-deadline": -1}, "round-deadline: -1 is not allowed; expected a number >= 0"),
    ({"over-select": 0.9}, "over-select: 0.9 is not allowed; expected a number >= 1"),
    ({"over-select": 2}, "over-select: 2.0 is not allowed; expected 1 without devices"),
    (
        {"over-select": 2, "devices": "uniform"},
        "over-select: 2.0 is not allowed; expected 1 where all clients",
    ),
    ({"devices": "uniform", **PRIVATE}, "devices: 'uniform' is not allowed; expected none with dp 'client'"),
    (
        {"devices": "uniform", "dataset": SHAPE},
        "devices: 'uniform' is not allowed; expected none with dataset",
    ),
]
"""Values as Python and Flower give them, and how the line begins."""


def test_from_python_too():
    for values, beginning in VALUES:
        with pytest.raises(UserError) as caught:
            run_config(values)
        assert str(caught.value).startswith(beginning), values
        assert "\n" not in str(caught.value)
