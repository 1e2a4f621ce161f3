"""What of a model never changes: patterns on names, frozen modules, and the split of the state dict."""

import pytest
import torch
from torch import nn

from clients import CLIENTS
from clients.modules.frozen import (
    constant_entries,
    freeze,
    matching,
    names_of_parts,
    split,
    still_modules,
    train_mode,
)


def network(affine=True):
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, affine=affine), nn.Linear(3, 2))


STATISTICS = {"1.running_mean", "1.running_var", "1.num_batches_tracked"}


def test_a_pattern_matches_a_module_or_an_entry():
    from torchvision.models import resnet18  # late: seconds

    with torch.device("meta"):
        model = resnet18(num_classes=2)
    assert matching(model, "fc") == {"fc.weight", "fc.bias"}
    assert matching(model, "layer4.1.bn2.running_var") == {"layer4.1.bn2.running_var"}
    assert matching(model, "layer?.0.downsample.1.bias") == {
        f"layer{i}.0.downsample.1.bias" for i in (2, 3, 4)
    }
    assert matching(model, "*.bias") == {name for name in model.state_dict() if name.endswith(".bias")}
    layer4 = {name for name in model.state_dict() if name.startswith("layer4.")}
    assert matching(model, "layer4") == layer4
    assert matching(model, "layer[4-9]") == layer4
    assert not matching(model, "layer")
    assert {"layer4", "layer4.0.bn1", "layer4.0.bn1.bias", "fc"} <= set(names_of_parts(model))


def test_what_is_named_freezes_or_all_but_it():
    first, second = network(), network()
    frozen = {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert freeze(first, ["0", "1"]) == freeze(second, (), ["2"]) == frozen | STATISTICS
    for model in (first, second):
        assert [name for name, p in model.named_parameters() if p.requires_grad] == ["2.weight", "2.bias"]
        assert constant_entries(model) == frozen | STATISTICS
        assert constant_entries(model, statistics_adapt=True) == frozen
    both = network()
    freeze(both, ["2.bias"], ["2"])
    assert [name for name, p in both.named_parameters() if p.requires_grad] == ["2.weight"]


@pytest.mark.parametrize("name", ["0.weight", "1.weight"])
def test_a_tied_parameter_is_frozen_by_any_of_its_names(name):
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    assert freeze(model, [name]) == {name}
    assert not model[0].weight.requires_grad


def test_nothing_is_frozen_of_a_model_that_trains():
    model = network()
    assert freeze(model, []) == constant_entries(model) == still_modules(model, frozenset()) == frozenset()
    assert constant_entries(nn.BatchNorm1d(2, affine=False)) == frozenset()


def test_the_statistics_of_a_batch_norm_that_trains_in_part_are_not_constant():
    model = network()
    freeze(model, ["1.weight"])
    assert constant_entries(model) == {"1.weight"}


def test_a_batch_norm_without_parameters_is_frozen_with_what_is_around_it_or_by_name():
    model = network(affine=False)
    freeze(model, ["0"])
    assert constant_entries(model) == {"0.weight", "0.bias"}
    backbone = nn.Sequential(network(affine=False), nn.Linear(2, 2))
    freeze(backbone, ["0"])
    assert constant_entries(backbone) >= {f"0.{name}" for name in STATISTICS}
    named = network(affine=False)
    assert constant_entries(named, freeze(named, ["1"])) == STATISTICS
    assert constant_entries(named, freeze(named, ["1"]), statistics_adapt=True) == frozenset()


def test_a_mask_travels_unless_all_around_it_is_frozen():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model.register_buffer("mask", torch.ones(2))
    model[0].register_buffer("table", torch.ones(2))
    freeze(model, ["0"])
    assert constant_entries(model) == {"0.weight", "0.bias", "0.table"}
    assert still_modules(model, constant_entries(model)) == {"0"}


def test_a_tied_tensor_is_constant_under_all_of_its_names():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    freeze(model, ["0.weight"])
    assert constant_entries(model) == {"0.weight", "1.weight"}


def test_frozen_statistics_stay_in_training_and_all_else_trains():
    model = network()
    freeze(model, ["1"])
    still = still_modules(model, constant_entries(model))
    assert still == {"1"}
    train_mode(model, still)
    assert [module.training for module in model] == [True, False, True]
    before = {name: model.state_dict()[name].clone() for name in STATISTICS}
    model(torch.randn(8, 4))
    assert all(torch.equal(entry, model.state_dict()[name]) for name, entry in before.items())
    train_mode(model, still_modules(model, constant_entries(model, statistics_adapt=True)))
    model(torch.randn(8, 4))
    assert model[1].num_batches_tracked == 1


def test_a_frozen_root_leaves_its_children_in_training():
    """A buffer of the root's own is frozen: the root alone is still, its BatchNorm and dropout train on."""
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    model.register_buffer("count", torch.zeros(()))
    freeze(model, ["count"])
    still = still_modules(model, constant_entries(model, freeze(model, ["count"])))
    assert still == {""}
    train_mode(model, still)
    assert (model.training, [module.training for module in model]) == (False, [True, True, True])


@pytest.mark.parametrize(
    ("client", "shared", "local"),
    [
        ("shared", {"2.weight", "2.bias"}, set()),
        ("fedbn", {"2.weight", "2.bias"}, set()),
        ("fedper", set(), {"2.weight", "2.bias"}),
    ],
)
def test_what_is_constant_is_neither_shared_nor_local(client, shared, local):
    model = network()
    freeze(model, ["0", "1"])
    names = list(model.state_dict())
    found = split(names, CLIENTS[client].local_entries(model), constant_entries(model))
    assert (set(found.shared), set(found.local)) == (shared, local)
    assert sorted([*found.shared, *found.local, *found.constant]) == sorted(names)
    adapting = split(names, CLIENTS["fedbn"].local_entries(model), constant_entries(model, (), True))
    assert set(adapting.local) == STATISTICS
