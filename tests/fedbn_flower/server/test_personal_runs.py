"""Runs of the personal clients, fedspeed, fedsmoo, fedgkd: data, late clients, refused."""

import re

import numpy as np
import pytest
import torch

from tests.quick import some_quick

PARTLY = {"num_clients": 6, "partition": "dirichlet:1", "fraction_train": 0.5, "dropout": 0.3, "rounds": 3}
CLIENTS = ("apfl", "pfedme", "per-fedavg", "fedala", "fedrod", "knn-per", "fedinit")
UNIONS = (
    *("fedbn+apfl", "silobn+fedala", "fedbn+fedrod", "silobn+pfedme", "fedbn+per-fedavg", "fedbn+knn-per"),
    *("fixbn+apfl", "hbn+apfl", "hbn+pfedme", "fedper+apfl", "fedper+fedala", "lg-fedavg+fedrod"),
    *("fedrep+fedala", "fedbabu+fedala", "knn-per+ditto", "knn-per+fedrod", "fbn+fedper", "hbn+fedper"),
    *("fixbn+ditto", "hbn+ditto", "fbn+fedrep"),
)
OBJECTIVES = ("fedspeed", "fedsmoo", "fedgkd")


def keys_of(name):
    keys = {"client": name, "strategy": "fedavg"}
    if name in OBJECTIVES:
        keys = {"objective": name, "client": "fedbn", "strategy": name if name == "fedsmoo" else "fedyogi"}
    return keys | ({"perfedavg_form": "hf"} if "per-fedavg" in name else {})


@pytest.mark.slow
def test_a_client_s_own_data_are_learnt_better_with_it(run):
    """Two classes a client, tested on its own: a mixed or personal model beats the shared one at once."""
    keys = {"partition": "shards:2", "num_clients": 5, "eval_data": "local", "strategy": "fedavg"}
    shared, *others = (
        run(**keys, rounds=3, batch_size=128, client=name).summary["client-mean"]["accuracy"]
        for name in ("shared", "apfl", "fedbn+fedala", "fedrod", "pfedme")
    )
    assert min(others) > shared + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", some_quick([*CLIENTS, "fedspeed", "fedgkd"], {5}))
def test_clients_held_out_and_late_are_evaluated(run, name):
    result = run(
        **keys_of(name), partition="iid", num_clients=4, holdout_clients=1, fraction_train=0.4, rounds=2
    )
    assert result.summary["failures"] == 0
    assert len(result.summary["new-clients"]["clients"]) == 1
    assert len(result.summary["clients"]) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", some_quick(["apfl", "pfedme", "per-fedavg", "fedala", "fedspeed", "fedsmoo"], {1})
)
def test_numbers_are_learnt_too(run, name):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4)).astype(np.float32)
    y = (x @ [1.0, -1.0, 0.5, 0.0]).astype(np.float32)
    keys = keys_of(name) | {"model": "linear" if name in ("apfl", "pfedme") else "mlp-bn", "client_lr": 0.01}
    keys |= {"client": "shared"} if name in OBJECTIVES else {}
    result = run(
        data=(x[:48], y[:48], x[48:], y[48:]), problem="regression", partition="iid", num_clients=3, **keys
    )
    assert result.summary["failures"] == 0
    assert all(np.isfinite(one["loss"]) for one in result.summary["clients"].values())


@pytest.mark.slow
@pytest.mark.parametrize("name", some_quick([*CLIENTS, *OBJECTIVES], range(0, 20, 2)))
def test_part_of_the_model_is_frozen(run, name):
    """The first layer stays in every client, personal or not."""
    keys = PARTLY | keys_of(name) | {"rounds": 2, "freeze": "1"}
    result = run(**keys)
    assert result.summary["failures"] == 0
    once = run(**keys | {"rounds": 1})
    trained = int(once.clients.query("phase == 'train'")["partition"].iloc[0])
    model, other = result.model(trained), once.model(trained)
    assert torch.equal(model[1].weight, other[1].weight)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"client": "per-fedavg", "objective": "fedprox"}, "objective: 'fedprox' is not .* expected 'plain'"),
        ({"client": "fedrod", "freeze": "4"}, "client: 'fedrod' .* the head '4' is frozen"),
        ({"client": "fedrod", "softmax_output": True}, "client: 'fedrod' .* something comes after its head"),
        ({"client": "apfl+ditto"}, r"client: 'apfl\+ditto' .* which both decide about a personal model"),
        ({"client": "apfl+fedrep"}, r"client: 'apfl\+fedrep' .* both decide about what a round trains"),
        ({"client": "pfedme+fedbabu"}, "which both decide about what a round trains"),
        ({"client": "fbn+apfl"}, "which both decide about how many passes a step has"),
        ({"client": "fedrod+fedper"}, "which both decide about the head"),
        ({"client": "fedrod+apfl"}, "which both decide about a personal model"),
    ],
)
def test_what_is_refused_in_one_line(refusal, keys, line):
    assert re.search(line, refusal(**keys))
