"""AdaBN: statistics of a client's own inputs before each evaluation, whoever it is."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from clients import ContextStore, FedAvgClient, Memory
from fedbn_flower.site.inputs import local_task

KEYS = {"client": "shared", "strategy": "fedavg", "dataset": "scanners", "adapt_bn": True}


def by_hand(x, task):
    """Outputs of ``mlp-bn`` for a client's test examples, and their labels, by the mean and the unbiased
    variance of all of its training inputs."""

    def inner(examples):
        images, labels = next(iter(examples.load([np.arange(len(examples))])))
        return images.double().flatten(1) @ x["1.weight"].T + x["1.bias"], labels

    own, _ = inner(task.train)
    test, labels = inner(task.evaluation["test"])
    normal = (test - own.mean(0)) / (own.var(0, unbiased=True) + 1e-5).sqrt()
    hidden = (normal * x["2.weight"] + x["2.bias"]).relu()
    return hidden @ x["4.weight"].T + x["4.bias"], labels


def assert_same_models(one, other):
    """The same bits of the model and of every memory."""
    for client in (0, 3):
        first, second = (result.model(client).state_dict() for result in (one, other))
        assert all(torch.equal(entry, second[name]) for name, entry in first.items())


def test_every_client_evaluates_with_statistics_of_its_own_inputs(run, configured):
    """By formula, of the shared model; the server's own evaluation is of the model as it is. Nothing of it is
    kept."""
    result = run(**KEYS, run_dir="saved")
    x = {name: torch.from_numpy(a).double() for name, a in load_file("saved/model.safetensors").items()}
    config = configured(**KEYS | {"rounds": 2, "local_epochs": 1, "batch_size": 128})
    for partition, found in result.summary["clients"].items():
        task = local_task(config, int(partition), {})
        output, labels = by_hand(x, task)
        assert found["accuracy"] == pytest.approx((output.argmax(1) == labels).double().mean().item())
    plain = run(**KEYS | {"adapt_bn": False}, run_dir="plain")
    assert_same_models(result, plain)
    assert result.summary["global"] == plain.summary["global"]
    assert result.summary["client-mean"]["accuracy"] > plain.summary["client-mean"]["accuracy"] + 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys", [{"client": "fedbn"}, {"eval_model": "local"}, {"client": "silobn"}, {"client": "ditto"}]
)
def test_training_is_as_without(run, keys):
    """Nothing of it is kept from round to round."""
    one, other = (run(**KEYS | keys | {"adapt_bn": adapt}, run_dir=f"run{adapt}") for adapt in (True, False))
    assert_same_models(one, other)
    assert one.summary["client-mean"] != other.summary["client-mean"]


def test_labels_of_training_examples_do_not_matter(configured):
    """A client whose labels are all of one class evaluates the same model as one with its own."""
    task = local_task(configured(**KEYS), 0, {})
    blind = replace(task.train, columns={**task.train.columns, "y": np.zeros_like(task.train.columns["y"])})
    found = []
    for train in (task.train, blind):
        client = FedAvgClient(replace(task, train=train), Memory(ContextStore()))
        config = {"server-round": 1, "eval-splits": "test", "adapt-bn": True}
        found.append(client.evaluate(client.get_parameters({}), config))
    assert found[0] == found[1]


def test_clients_who_evaluate_the_same_examples_do_so_each_by_itself(run):
    """One evaluation is not taken for all clients of a process."""
    keys = {"dataset": "digits", "num_clients": 4, "partition": "dirichlet:0.5", "rounds": 1}
    keys |= {"eval_data": "global"}
    adapted, plain = (run(**KEYS | keys | {"adapt_bn": adapt}).summary["clients"] for adapt in (True, False))
    assert len({client["loss"] for client in adapted.values()}) == 4
    assert len({client["loss"] for client in plain.values()}) == 1


@pytest.mark.slow
def test_statistics_that_tuned_steps_have_moved_are_not_those_that_are_evaluated(run):
    """With a rate of nothing, steps move nothing else."""

    def found(**keys):
        return run(**KEYS | {"rounds": 1, "client_lr": 1e-30} | keys).summary["client-mean"]

    assert found(fine_tune=3) == found()


@pytest.mark.slow
def test_new_clients_do_so_too_but_for_the_comparison_without(run):
    """Held out: of shared statistics they take their own only with the key. Left out: once with, once
    without."""
    held = {"holdout_clients": 1, "rounds": 1}
    with_own = run(**KEYS | held).summary["new-clients"]["clients"]
    without = run(**KEYS | held | {"adapt_bn": False}).summary["new-clients"]["clients"]
    assert with_own.keys() == without.keys()
    assert with_own != without
    left = {"leave_one_site_out": True, "left_out": 2, "rounds": 1}
    adapted, plain = (run(**KEYS | left | {"adapt_bn": adapt}).summary for adapt in (True, False))
    assert adapted["new-clients"] == plain["new-clients"]
    assert adapted["client-mean"] != plain["client-mean"]
    key = next(name for name in adapted if name.startswith("new-clients-"))
    assert adapted[key] == plain[key]


def test_not_where_metrics_are_bought(refusal):
    keys = {"dp": "local", "dp_noise": 1.0, "dp_delta": 1e-5, "strategy": "fedavg", "client": "fedbn"}
    line = "adapt-bn: True is not allowed; expected false, since clients send no other"
    assert refusal(**keys, adapt_bn=True).startswith(line)
