"""Which entries stay at home, told by module type; and that they really do."""

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from torch import nn

from clients import CLIENTS, FedAvgClient, FedBNClient, LocalTraining, SiloBNClient

from ...quick import diagonal_quick
from ..helpers import CONFIG, make_client, small_model


def test_resnet18_is_split_by_module_type():
    """20 BatchNorm layers of 5 entries; three are called ``downsample.1``, with no "bn" in the name."""
    from torchvision.models import resnet18  # late: seconds

    with torch.device("meta"):
        model = resnet18()
    names = list(model.state_dict())
    statistics = SiloBNClient.local_entries(model)
    entries = FedBNClient.local_entries(model)
    assert (len(names), len(statistics), len(entries)) == (122, 60, 100)
    assert statistics == {
        n for n in names if n.endswith(("running_mean", "running_var", "num_batches_tracked"))
    }
    nameless = {n for n in entries if "bn" not in n}
    assert len(nameless) == 15
    assert all(".downsample.1." in n for n in nameless)
    assert set(names) - entries == {
        n for n in names if n.startswith("fc.") or "conv" in n or "downsample.0" in n
    }
    assert FedAvgClient.local_entries(model) == set()


def test_modules_without_statistics_or_affine_parameters():
    model = nn.Sequential(
        nn.BatchNorm1d(3, affine=False), nn.BatchNorm2d(3, track_running_stats=False), nn.LayerNorm(3)
    )
    assert FedBNClient.local_entries(model) == {
        "0.running_mean", "0.running_var", "0.num_batches_tracked", "1.weight", "1.bias",
    }  # fmt: skip
    assert SiloBNClient.local_entries(model) == {"0.running_mean", "0.running_var", "0.num_batches_tracked"}


@pytest.mark.parametrize("name", CLIENTS)
def test_shared_and_local_make_up_the_model(name):
    client = make_client(name)
    assert sorted(client.shared_names + client.local_names) == sorted(client.task.initial)
    assert [a.shape for a in client.get_parameters({})] == [
        client.task.initial[n].shape for n in client.shared_names
    ]


def test_clients_that_share_a_module_do_not_leak_into_each_other():
    model = small_model()
    one, other = (make_client("fedbn", model=model, seed=s) for s in (1, 2))
    alone = make_client("fedbn", model=small_model(), seed=2)
    start = one.get_parameters({})
    one.fit(start, CONFIG)
    for mixed, separate in zip(other.fit(start, CONFIG)[0], alone.fit(start, CONFIG)[0], strict=True):
        np.testing.assert_array_equal(mixed, separate)


def test_a_client_that_never_trained_estimates_its_statistics_on_its_own_images():
    """One pass, the cumulative average: with one batch, the batch's own mean and unbiased variance."""
    client = make_client("fedbn")
    client.evaluate(client.get_parameters({}), CONFIG | {"eval-splits": "test"})
    linear, norm = client.task.model[1], client.task.model[2]
    images, _ = next(client.task.train.load([np.arange(len(client.task.train))]))
    hidden = linear(images.flatten(1)).detach().numpy()
    np.testing.assert_allclose(norm.running_mean.numpy(), hidden.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(norm.running_var.numpy(), hidden.var(0, ddof=1), rtol=1e-5)
    np.testing.assert_array_equal(norm.weight.detach().numpy(), client.task.initial["2.weight"])
    assert norm.momentum == 0.1
    assert client.memory.read("local") is None


def test_an_entry_of_the_wrong_shape_is_refused_by_name():
    client = make_client("shared")
    parameters = client.get_parameters({})
    parameters[0] = parameters[0].T
    with pytest.raises(ValueError, match=r"1\.weight has shape \(4, 5\), expected \(5, 4\)"):
        client.fit(parameters, CONFIG)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trains", "other"), diagonal_quick(["fedrep", "fedbabu"], ["fedala", "fedinit", "fbn"])
)
def test_in_either_order_both_of_two_joined_clients_train(trains, other):
    """FedRep and FedBABU have trainings of their own, after which no other client's method has its turn."""
    outcomes = []
    for name in (f"{trains}+{other}", f"{other}+{trains}"):
        client = make_client(name, RecordDict(), training=LocalTraining(1, 8))
        if other == "fedala":
            client.layers = 2  # the top one is the head, at home
        for server_round in (1, 2):
            sent = client.fit([a + a.dtype.type(server_round) for a in client.get_parameters({})], CONFIG)
            client.memory.commit()
        assert client.gathered if other == "fbn" else client.memory.read(other)
        outcomes.append(sent.arrays)
    assert all(np.array_equal(one, another) for one, another in zip(*outcomes, strict=True))
