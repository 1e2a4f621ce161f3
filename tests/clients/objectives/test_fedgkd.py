"""FedGKD against Yao et al. 2021: distillation from the mean of the last received models."""

import numpy as np
import pytest
import torch
from flwr.app import RecordDict

from clients import FedAvgClient, LocalTraining

from ..helpers import CONFIG
from ..helpers import make_client as small_client
from ..networks import dropping
from ..written import (
    CASES,
    LOCAL,
    RATE,
    TRAINING,
    At,
    entries_like,
    forward,
    here,
    make_client,
    trained,
    usual,
)

GAMMA, T, M = 0.9, 2.0, 3
SETTINGS = {"gkd-gamma": GAMMA, "gkd-temperature": T, "gkd-models": M}


def written(at: At):
    """`previous` is the teacher, in evaluation mode."""
    q = (forward(at.w, at.inputs)[1] / T).softmax(1)
    teacher = (forward(at.previous, at.inputs, train=False)[1] / T).softmax(1)
    return usual(at) + GAMMA / 2 * T**2 * (teacher * (teacher / q).log()).sum(1).mean()


def mean(models):
    """Of the entries; counts are the last one's."""
    return {
        n: sum(model[n] for model in models) / len(models) if e.is_floating_point() else e
        for n, e in models[-1].items()
    }


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES)
def test_five_rounds_are_those_of_the_formula(case):
    """The teacher is of one, two, three and again three models, this round's among them."""
    client = make_client(*case, "fedgkd", training=TRAINING)
    initial = {n: e.clone() for n, e in client.task.model.state_dict().items()}
    own, received = {n: initial[n] for n in LOCAL[case[0]] if n in initial}, []
    for server_round in (1, 2, 3, 4, 5):
        x = entries_like(initial, 5 + server_round) | own
        received = [*received, x][-M:]
        told = CONFIG | {"server-round": server_round, "client-lr": RATE} | SETTINGS
        arrays, _, _ = client.fit([x[n].numpy() for n in client.shared_names], told)
        client.memory.commit()
        w = trained(client, written, here, x, mean(received), server_round)
        own = {n: w[n] for n in own}
        for name, array in zip(client.shared_names, arrays, strict=True):
            torch.testing.assert_close(torch.from_numpy(array), w[name], atol=1e-9, rtol=0)
        assert len(client.memory.read("fedgkd")) == len(x) * min(M - 1, server_round)


def test_with_gamma_zero_it_is_sgd():
    """Bit for bit: the teacher moves no statistics and draws nothing of dropout's numbers."""
    sent = []
    for objective, more in (("plain", {}), ("fedgkd", {"gkd-gamma": 0.0})):
        client = small_client(
            FedAvgClient, model=dropping(), training=LocalTraining(2, 8), objective=objective
        )
        for server_round in (1, 2):
            config = CONFIG | more | {"server-round": server_round}
            arrays, _, metrics = client.fit(client.get_parameters({}), config)
            client.memory.commit()
        sent.append([*arrays, metrics["train-loss"]])
    for a, b in zip(*sent, strict=True):
        np.testing.assert_array_equal(a, b)


def test_of_one_model_nothing_is_remembered():
    client = small_client(FedAvgClient, RecordDict(), objective="fedgkd")
    client.fit(client.get_parameters({}), CONFIG | {"gkd-models": 1})
    client.memory.commit()
    assert client.memory.read("fedgkd") is None


def test_a_loss_by_example_has_the_mean_of_the_batchs():
    client = make_client("shared", False, "fedgkd")
    run = client.begin_run(dict(client.task.model.named_parameters()), CONFIG | SETTINGS, {})
    for p in client.task.model.parameters():
        p.data += 0.1
    inputs, targets = client.task.train.prepared(np.arange(9))
    each, whole = (run.objective.loss(client.task.model, inputs, targets, r)[0] for r in ("none", "mean"))
    assert each.shape == (9,)
    assert each.mean().item() == pytest.approx(whole.item())
