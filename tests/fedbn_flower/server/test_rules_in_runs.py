"""Server rules in runs: lockstep, refusals, and what of a rule is kept."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedbn_flower.clients.problems.evaluation import evaluate_splits
from fedbn_flower.core.errors import UserError
from fedbn_flower.job.held_out import whole_split
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.inputs import inputs_at
from tests.quick import some_quick

RULES = {
    "qfedavg": {"q": 2.0},
    "term": {"tilt": 2.0},
    "afl": {"afl_rate": 0.05},
    "feddisco": {},
    "fedexp": {"clip_update_norm": 5.0},
    "fedcm": {"objective": "fedcm"},
    "fedacg": {"objective": "fedacg"},
    "feddc": {"objective": "feddc", "dc_alpha": 0.1},
    "fedadmm": {"objective": "fedadmm", "admm_rho": 0.1},
    "mimelite": {"objective": "mimelite", "mime_optimizer": "adam", "client_lr": 0.001},
    "mime": {"objective": "mime", "client_lr": 0.02},
    "fedtan": {"objective": "fedtan", "client": "shared"},
}
"""The keys with which each rule is run."""
PARTLY = {"num_clients": 6, "partition": "dirichlet:1", "fraction_train": 0.5, "dropout": 0.2}


def entries(folder):
    return load_file(Path(folder, "model.safetensors"))


def same(one, other, atol=0.0):
    assert one.keys() == other.keys()
    for name, entry in one.items():
        np.testing.assert_allclose(entry, other[name], atol=atol, rtol=0, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("rule", some_quick([*RULES], {0, *range(5, 12)}))
def test_in_lockstep_or_one_by_one(run, rule):
    keys = PARTLY | {"model": "mlp-bn", "strategy": rule, "rounds": 2} | RULES[rule]
    run(**keys, fast="off", run_dir="one-by-one")
    run(**keys, fast="auto", run_dir="lockstep")
    same(entries("one-by-one"), entries("lockstep"), atol=2e-5)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"strategy": "qfedavg", "mean": "median"}, "mean: 'median' is not allowed"),
        ({"strategy": "qfedavg", "clip_update_norm": 1.0}, "clip-update-norm: 1.0 is not allowed"),
        (
            {"strategy": "feddisco", "dp": "client", "dp_noise": 1.0, "dp_delta": 1e-3},
            "expected 'num-examples'",
        ),
        *(
            ({"strategy": "fedtan"} | RULES["fedtan"] | keys, words)
            for keys, words in (
                ({"client": "silobn"}, "client: 'silobn' is not allowed; expected 'shared'"),
                ({"model": "2nn"}, "objective: 'fedtan' .* with model '2nn': it has no BatchNorm layer that"),
                ({"model": "mlp-bn", "freeze": "2"}, "with model 'mlp-bn': it has no BatchNorm layer that"),
                ({"clip_norm": 1.0}, "clip-norm: 1.0 is not allowed"),
                ({"secagg": "plain"}, "strategy: 'fedtan' is not allowed"),
                ({"protocol": "fedbuff:2", "concurrency": 2}, "strategy: 'fedtan' is not allowed"),
            )
        ),
        ({"strategy": "feddisco", "dataset": "quadratic:3", "num_clients": 3}, "feddisco.*needs classes"),
        ({"strategy": "fedexp", "mean": "krum:0"}, "mean: 'krum:0' is not allowed"),
        ({"strategy": "fedexp", "compress_down": "bf16"}, "compress-down: 'bf16' is not allowed"),
        ({"strategy": "mime", "objective": "mime", "devices": "phones"}, "devices: 'phones' is not allowed"),
        ({"strategy": "qfedavg", "protocol": "fedbuff:2", "concurrency": 2}, "qfedavg"),
    ],
)
def test_what_a_rule_does_not_go_with_is_refused(run, keys, words):
    with pytest.raises(UserError, match=words):
        run(**keys)


@pytest.mark.slow
def test_fedtan_of_whole_batches_is_training_in_one_place(run):
    """One step a round of all clients' examples at once, whatever classes they have; FedAvg's is another."""
    keys = {"model": "mlp-bn", "client": "shared", "num_clients": 4, "partition": "dirichlet:0.1"}
    keys |= {"batch_size": 0, "client_lr": 0.5, "rounds": 5}
    run(**keys | {"strategy": "fedtan"} | RULES["fedtan"], run_dir="fedtan")
    run(**keys, strategy="fedavg", run_dir="fedavg")
    run(**keys, reference="pooled", run_dir="pooled")
    same(entries("fedtan"), entries("pooled"), atol=1e-5)
    assert np.abs(entries("fedavg")["4.weight"] - entries("pooled")["4.weight"]).max() > 0.05


def test_fedtan_is_not_for_sites_with_data_of_their_own(configured):
    keys = {"dataset": "shape:1x8x8:10", "model": "mlp-bn", "strategy": "fedtan", **RULES["fedtan"]}
    with pytest.raises(UserError, match="^strategy: 'fedtan' is not allowed; .* it is for simulations"):
        Federation(configured(**keys))
    with pytest.raises(UserError, match="^strategy: 'fedtan' is not allowed; .* with data of its own"):
        inputs_at(configured(**keys), {"data-path": "here"})


@pytest.mark.slow
def test_the_loss_that_qfedavg_weighs_by_is_that_of_the_model_before(run):
    """In round 1 it is the initial model's, whatever the clients then learn."""
    found = [
        run(strategy="qfedavg", client_lr=lr, rounds=1, model="2nn").clients.query("phase == 'train'")
        for lr in (0.001, 0.1)
    ]
    losses = [list(frame["start-loss"]) for frame in found]
    assert losses[0] == losses[1]
    assert losses[0][0] == pytest.approx(2.3, abs=0.3)
    assert list(found[0]["train-loss"]) != list(found[1]["train-loss"])


@pytest.mark.parametrize("rule", ["fedexp", "fedacg"])
def test_the_model_that_counts_is_evaluated_and_kept(run, configured, rule):
    """It is less than the one that travels, by half a step, or by lambda m; the folder has both."""
    keys = {"strategy": rule, "model": "mlp-bn", "eval_data": "global", "client": "shared"}
    keys |= {"num_clients": 4, "partition": "iid"}
    result = run(**keys, **RULES[rule], run_dir="run")
    saved = load_file(Path("run", "checkpoint", "server.safetensors"))
    travels = {name.removeprefix("model/"): a for name, a in saved.items() if name.startswith("model/")}
    kept = entries("run")
    names = sorted(name for name in kept if name.endswith(("weight", "bias")))
    ahead = np.concatenate([(travels[name] - kept[name]).ravel() for name in names])
    vector = saved["rule/last-step"] / 2 if rule == "fedexp" else 0.85 * saved["rule/momentum"]
    assert np.abs(vector).max() > 1e-3
    np.testing.assert_allclose(ahead, vector, atol=1e-6)
    same({n: a for n, a in kept.items() if n not in names}, {n: travels[n] for n in kept if n not in names})
    inputs = inputs_of(configured(model="mlp-bn", num_clients=4, partition="iid"))
    found = evaluate_splits(
        result.model(), {"test": whole_split(inputs, "test")}, "test", inputs.dataset.problem
    )
    assert found["loss"] == pytest.approx(result.summary["global"]["loss"], rel=1e-5)
