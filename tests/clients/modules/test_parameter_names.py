"""Tensors under several names, and frozen ones: what a client trains, sends and understands."""

import numpy as np
import pytest
import torch
from torch import nn

from clients import FedAvgClient, FedBNClient, LocalTraining, Received, trainable_names
from clients.modules.arrays import aliases

from ..helpers import CONFIG, make_client


def tied_model():
    """The two inner layers are one; the last layer's bias is frozen."""
    torch.manual_seed(0)
    layer = nn.Linear(4, 4)
    model = nn.Sequential(nn.Flatten(), layer, nn.Tanh(), layer, nn.BatchNorm1d(4), nn.Linear(4, 3))
    model[5].bias.requires_grad_(False)
    return model


TRAINED = ["1.weight", "1.bias", "3.weight", "3.bias", "4.weight", "4.bias", "5.weight"]


def test_a_parameter_is_trainable_under_every_name():
    assert trainable_names(tied_model()) == TRAINED


def test_a_tensor_is_known_by_each_of_its_names():
    norm = nn.BatchNorm1d(4)
    names = aliases(nn.Sequential(norm, nn.Tanh(), norm))
    assert names == {f"{i}.{name}": (f"0.{name}", f"2.{name}") for i in (0, 2) for name in norm.state_dict()}


def scaffold_client(cls, training=None):
    return make_client(cls, None, tied_model(), 0, training, "scaffold")


def received(client, control):
    return Received(client.get_parameters({}).by_name(), {"control": control})


@pytest.mark.parametrize("cls", [FedAvgClient, FedBNClient])
def test_scaffolds_control_goes_out_under_every_shared_trainable_name(cls):
    client = scaffold_client(cls)
    names = [n for n in trainable_names(client.task.model) if n in client.shared_names]
    update = client.fit(received(client, {n: np.zeros_like(client.task.initial[n]) for n in names}), CONFIG)
    control = update.records["control"]
    assert sorted(control) == sorted(names)
    np.testing.assert_array_equal(control["1.weight"], control["3.weight"])
    assert set(client.memory.read("scaffold")) == set(names) - {"3.weight", "3.bias"}
    sent = update.arrays.by_name()
    np.testing.assert_array_equal(sent["1.weight"], sent["3.weight"])
    np.testing.assert_array_equal(sent["5.bias"], client.task.initial["5.bias"])


def test_a_control_is_understood_under_either_name_and_counts_once():
    """One step of rate 0.1 in one batch: c = 2 moves every entry by -0.2 more."""
    moved = {}
    first, second = ["1.weight", "1.bias"], ["3.weight", "3.bias"]
    for names in (first, second, first + second):
        for c in (0.0, 2.0):
            client = scaffold_client(FedAvgClient, LocalTraining(1, 0))
            every = {n: np.zeros_like(client.task.initial[n]) for n in ("4.weight", "4.bias", "5.weight")}
            control = every | {n: np.full_like(client.task.initial[n], c) for n in names}
            sent, *_ = client.fit(received(client, control), CONFIG)
            moved[c] = sent.by_name()
        for name in ("1.weight", "3.bias"):
            np.testing.assert_allclose(moved[2.0][name] - moved[0.0][name], -0.2, atol=1e-6)


def test_a_control_that_lacks_a_parameter_is_refused_by_name():
    client = scaffold_client(FedAvgClient)
    with pytest.raises(ValueError, match=r"the record 'control' lacks 1\.bias"):
        client.fit(received(client, {"1.weight": np.zeros((4, 4), np.float32)}), CONFIG)


def test_a_tensor_cannot_be_local_under_one_name_and_shared_under_another():
    class Half(FedAvgClient):
        @staticmethod
        def local_entries(model):
            return frozenset({"3.weight"})

    with pytest.raises(ValueError, match=r"1\.weight and 3\.weight are one tensor"):
        make_client(Half, model=tied_model())
