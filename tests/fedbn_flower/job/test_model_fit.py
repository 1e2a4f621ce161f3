"""Whether a configuration fits its data and model: batches of one example, optimisers."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from clients.modules.optimizers import optimizers
from fedbn_flower.core.errors import UserError
from fedbn_flower.job.checks.model_fit import check_fit
from fedbn_flower.job.inputs import inputs_of


@pytest.mark.parametrize("model", ["mlp-bn", "cnn-bn"])
def test_batches_of_one_example_are_refused_where_the_model_cannot_train_on_one(configured, model):
    """Maps of several pixels are several values, but a BatchNorm after a linear layer has one."""
    line = rf"^batch-size: 1 is not allowed; expected 2 or more, or 0: '{model}' cannot train on one example"
    with pytest.raises(UserError, match=line):
        check_fit(inputs_of(configured(model=model, batch_size=1)))


def test_a_gpu_that_is_not_there_is_refused(configured, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match="^device: 'cuda' is not allowed; expected 'cpu': PyTorch finds no"):
        check_fit(inputs_of(configured(device="cuda")))


@pytest.mark.parametrize("model", ["linear", "resnet20"])
def test_other_models_take_them(configured, model):
    check_fit(inputs_of(configured(model=model, batch_size=1)))


def sites(*sizes):
    pytest.importorskip("fedbn_flower.own_data")
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(sum(sizes), 6)).astype(np.float32))
    y = torch.arange(sum(sizes)) % 2
    return [TensorDataset(*part) for part in zip(x.split(sizes), y.split(sizes), strict=True)]


def test_clients_of_one_example_are_reported_beforehand(run, caplog):
    data, (test,) = sites(8, 1, 8, 1), sites(10)
    result = run(data=data, test=test, model="mlp-bn", client="shared", rounds=1)
    (output,) = [line for line in caplog.messages if line.startswith("partition: ")]
    assert output == (
        "partition: 2 of 4 clients (the first is 1) have one example only, and 'mlp-bn' cannot train on one "
        "(BatchNorm needs two): they fail in every round"
    )
    assert result.summary["failures"] == 2
    caplog.clear()
    run(data=data, test=test, model="linear", client="shared", rounds=1)
    assert not [line for line in caplog.messages if line.startswith("partition: ")]


def test_a_federation_of_such_clients_only_is_refused(run):
    output = "^num-clients: 2 is not allowed; expected fewer; each client has one example, and 'mlp-bn'"
    with pytest.raises(UserError, match=output):
        run(data=sites(1, 1), test=sites(10)[0], model="mlp-bn", client="shared")


@pytest.mark.skipif("muon" not in optimizers(), reason="this PyTorch has no Muon")
def test_an_optimiser_of_matrices_is_for_models_of_matrices(run):
    output = (
        r"^client-optimizer: 'muon' is not allowed; expected another one for model 'linear', or what torch"
    )
    with pytest.raises(UserError, match=output):
        run(client="shared", model="linear", client_optimizer="muon")

    def matrices(spec):
        return nn.Sequential(nn.Flatten(), nn.Linear(spec.size, spec.outputs, bias=False))

    result = run(client="shared", model=matrices, client_optimizer="muon", client_momentum=0.9)
    assert result.summary["failures"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer", ["adafactor", "rprop", "nadam:momentum_decay=0.01", "sgd:nesterov=true"]
)
def test_optimisers_of_torch_train(run, optimizer):
    """Better than guessing among the ten digits, which has a loss of ln 10."""
    keys = {"client": "shared", "partition": "iid", "client_momentum": 0.9, "client_lr": 0.002}
    result = run(**keys, client_optimizer=optimizer, local_epochs=2, batch_size=32)
    assert result.history["train-loss"].iloc[-1] < 0.7 * np.log(10)
    assert result.summary["failures"] == 0
