"""AdaBN, the pass that estimates statistics, against numpy on all examples at once."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from clients import Examples, FedBNClient, SiloBNClient
from clients.modules.batch_norm import estimate_statistics

from ..helpers import CONFIG, make_client, make_examples, small_model


def darkening(count):
    """Images that get darker along the rows, as a folder sorted by class may."""
    rng = np.random.default_rng(0)
    images = (
        rng.integers(0, 100, (count, 1, 2, 2)) + np.linspace(155, 0, count).astype(int)[:, None, None, None]
    )
    x = (images.astype(np.uint8) / 255).astype(np.float32)
    return Examples({"x": x, "y": rng.integers(0, 3, count)}, np.arange(count))


def flat(examples):
    return examples.columns["x"][examples.rows].reshape(len(examples), -1).astype(float)


def hidden_of(layer, x):
    return x @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()


def test_uneven_batches_weigh_by_their_examples():
    """Batches of 3, 2 and 2 of seven examples: the mean of all, and the mean of their variances."""
    model, examples = small_model(), darkening(7)
    estimate_statistics(model, examples, 3, (4, 2))
    hidden = hidden_of(model[1], flat(examples))
    np.testing.assert_allclose(model[2].running_mean.numpy(), hidden.mean(0), atol=1e-5)
    order = np.random.default_rng([4, 2]).permutation(7)
    parts = hidden[order[:3]], hidden[order[3:5]], hidden[order[5:]]
    variance = sum(len(p) * p.var(0, ddof=1) for p in parts) / 7
    np.testing.assert_allclose(model[2].running_var.numpy(), variance, rtol=1e-4)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        x = x.flatten(1)
        return self.norm(x) + self.norm(3 * x + 1)


def test_a_layer_used_twice_sees_both_of_its_inputs_alike():
    model, examples = Twice(), darkening(50)
    estimate_statistics(model, examples, 20, (0, 0))
    x = flat(examples)
    np.testing.assert_allclose(model.norm.running_mean.numpy(), (x.mean(0) * 4 + 1) / 2, rtol=1e-5)


def test_instance_norm_takes_the_mean_of_the_images_own_statistics():
    model, examples = nn.Sequential(nn.InstanceNorm2d(1, track_running_stats=True)), darkening(9)
    estimate_statistics(model, examples, 4, (0, 0))
    x = flat(examples)
    np.testing.assert_allclose(model[0].running_mean.numpy(), [x.mean()], rtol=1e-5)
    np.testing.assert_allclose(model[0].running_var.numpy(), [x.var(1, ddof=1).mean()], rtol=1e-5)


def test_only_normalisation_is_in_training_mode():
    model, examples = nn.Sequential(nn.Flatten(), nn.Dropout(0.9), nn.BatchNorm1d(4)), darkening(30)
    estimate_statistics(model.eval(), examples, 1000, (0, 0))
    np.testing.assert_allclose(model[2].running_mean.numpy(), flat(examples).mean(0), rtol=1e-5)
    assert not any(m.training for m in model.modules())
    assert model[2].momentum == 0.1


class Frozen(nn.BatchNorm1d):
    def train(self, mode=True):
        return super().train(False)


def test_what_training_would_leave_alone_stays():
    model = nn.Sequential(nn.Flatten(), Frozen(4))
    model[1].running_mean.fill_(5)
    estimate_statistics(model, make_examples(), 1000, (0, 0))
    assert model[1].running_mean.tolist() == [5] * 4


def test_one_example_has_no_variance():
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4))
    estimate_statistics(model, make_examples(1), 1000, (0, 0))
    assert model[1].running_mean.tolist() == [0] * 4
    assert model[1].running_var.tolist() == [1] * 4


class AlwaysDrops(nn.Module):
    def forward(self, x):
        return functional.dropout(x, 0.5)


@pytest.mark.parametrize("seed", [0, 1])
def test_two_evaluations_are_equal_to_the_bit_whatever_is_drawn_at_random(seed):
    def evaluated(process_seed):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), AlwaysDrops(), nn.BatchNorm1d(4), nn.Linear(4, 3))
        client = make_client("fedbn", None, model, seed)
        torch.manual_seed(process_seed)
        found = client.evaluate(client.get_parameters({}), CONFIG | {"eval-splits": "test,val"})
        return found, model[2].running_mean.tolist()

    assert evaluated(1) == evaluated(2)


def test_an_instance_norm_with_statistics_of_its_own_stays_at_home():
    model = nn.Sequential(
        nn.InstanceNorm2d(3, affine=True, track_running_stats=True), nn.InstanceNorm2d(3, affine=True)
    )
    statistics = {"0.running_mean", "0.running_var", "0.num_batches_tracked"}
    assert SiloBNClient.local_entries(model) == statistics
    assert FedBNClient.local_entries(model) == statistics | {"0.weight", "0.bias"}


def test_a_batch_norm_weight_tied_to_another_module_stays_at_home_under_both_names():
    model = nn.ModuleDict({"norm": nn.BatchNorm1d(3), "scale": nn.LayerNorm(3)})
    model["scale"].weight = model["norm"].weight
    assert "scale.weight" in FedBNClient.local_entries(model)
    assert "scale.bias" not in FedBNClient.local_entries(model)
