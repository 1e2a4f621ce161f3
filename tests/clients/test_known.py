"""Which models train in lockstep: those of known parts that pass a trial. Everything else trains alone."""

import copy
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from clients import (
    CLIENTS,
    OBJECTIVES,
    FedAvgClient,
    LocalTraining,
    Objective,
)
from clients.lockstep import why_alone, why_unknown

from .helpers import make_client, small_model
from .test_lockstep import assert_same, cohort, conv_model, rounds


class OwnForward(nn.BatchNorm1d):
    def forward(self, x):
        return super().forward(x) + 1


class Mixing(nn.Module):
    """Has no parameters, but an example's output depends on the others."""

    def forward(self, x):
        return x - x.mean(0)


class FunctionalDropout(nn.Module):
    lockstep_safe = True  # which is not true

    def forward(self, x):
        return functional.dropout(x, 0.3)


class SaysSafe(Mixing):
    lockstep_safe = True  # which is not true


class InheritsSafe(SaysSafe):
    """Says nothing of itself."""


class FunctionalWeight(nn.Module):
    """Uses its layer's weight without calling it."""

    lockstep_safe = True  # which is not true

    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        return self.layer(x) + functional.linear(x, self.layer.weight)


class Residual(nn.Module):
    lockstep_safe = True

    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return x + functional.relu(self.inner(x))


class Double(nn.Module):
    lockstep_safe = True

    def __init__(self, inner):
        super().__init__()
        self.inner = inner.double()

    def forward(self, x):
        return self.inner(x.double())


class Scaled(nn.Module):
    lockstep_safe = True  # which is not true: it has a parameter of its own

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x * self.scale


class Tokens(nn.Sequential):
    """A Linear on (N, 1, 2, 2)."""

    lockstep_safe = True

    def __init__(self, inner):
        super().__init__(nn.Linear(2, 2), inner)


def network(*middle):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 4), *middle, nn.Linear(4, 3))


def tied_modules():
    layer = nn.Linear(4, 4)
    return network(layer, nn.ReLU(), layer)


def shared_weight():
    model = network(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model[4].weight = model[2].weight
    return model


def shared_memory():
    model = network(nn.Linear(4, 4))
    model[2].weight = nn.Parameter(model[1].weight.data)
    return model


def changed(change):
    def make():
        model = network(nn.BatchNorm1d(4), nn.ReLU())
        change(model)
        return model

    return make


def kept_in_eval_mode(model):
    model[2].eval()
    model[2].train = lambda mode=True: model[2]


def own_forward(model):
    model[3].forward = lambda x: x


UNKNOWN = {
    "frozen": changed(lambda m: m[1].weight.requires_grad_(False)),
    "tied module": tied_modules,
    "shared weight": shared_weight,
    "shared memory": shared_memory,
    "forward hook": changed(lambda m: m[3].register_forward_hook(lambda *a: a[2] * 2)),
    "forward pre-hook": changed(lambda m: m.register_forward_pre_hook(lambda *a: None)),
    "backward hook": changed(lambda m: m[1].register_full_backward_hook(lambda *a: None)),
    "tensor hook": changed(lambda m: m[1].weight.register_hook(lambda g: g * 2)),
    "hook after accumulation": changed(
        lambda m: m[1].weight.register_post_accumulate_grad_hook(lambda p: None)
    ),
    "weight norm": changed(lambda m: nn.utils.parametrizations.weight_norm(m[1])),
    "forward of the instance": changed(own_forward),
    "BatchNorm in eval mode": changed(kept_in_eval_mode),
    "BatchNorm without momentum": lambda: network(nn.BatchNorm1d(4, momentum=None)),
    "BatchNorm subclass": lambda: network(OwnForward(4)),
    "ReLU subclass": lambda: network(type("Mine", (nn.ReLU,), {})()),
    "compiled": changed(lambda m: m.compile()),
    "LayerNorm": lambda: network(nn.LayerNorm(4)),
    "Dropout": lambda: network(nn.Dropout()),
    "mixing": lambda: network(Mixing()),
    "inherits a mark": lambda: network(InheritsSafe()),
    "Softmax over the batch": lambda: network(nn.Softmax(dim=0)),
    "Flatten of the batch": lambda: network(nn.Sequential(nn.Flatten(0), nn.Identity())),
    "float64": lambda: Double(network()),
    "a parameter of its own": lambda: network(Scaled()),
    "one more module in a layer": changed(lambda m: m[1].add_module("more", nn.Linear(1, 1))),
}
TRIED = {
    "Linear on (N, T, F)": lambda: nn.Sequential(nn.Linear(2, 2), nn.Flatten(), nn.Linear(4, 3)),
    "functional dropout": lambda: network(FunctionalDropout()),
    "functional weight": lambda: network(FunctionalWeight(4)),
    "says it is safe": lambda: network(SaysSafe()),
    "a parameter more": changed(lambda m: m[1].register_parameter("more", nn.Parameter(torch.ones(2)))),
    "raises": lambda: network(nn.Linear(5, 4)),
}
SERVED = {
    "built-in": small_model,
    "safe block": lambda: network(Residual(4), nn.Tanh(), nn.BatchNorm1d(4)),
    "softmax": lambda: nn.Sequential(network(), nn.Softmax(dim=1)),
    "pooling": lambda: nn.Sequential(nn.MaxPool2d(1), network()),
}


def why_not(make_model, cls=FedAvgClient, objective="sgd", values=None):
    client = make_client(cls, model=make_model(), objective=objective)
    unknown = why_unknown(client.task.model, client.task.objective, cls, "cpu")
    return unknown or why_alone(cls, client.task, values or {})


@pytest.mark.parametrize("name", UNKNOWN)
def test_models_that_are_not_known_train_alone(name):
    assert why_unknown(UNKNOWN[name](), OBJECTIVES["sgd"], FedAvgClient, "cpu")


@pytest.mark.parametrize("name", TRIED)
def test_models_that_fail_the_trial_train_alone(name):
    model = TRIED[name]()
    assert not why_unknown(model, OBJECTIVES["sgd"], FedAvgClient, "cpu")
    assert "the trial" in why_alone(FedAvgClient, make_client(FedAvgClient, model=model).task, {})


@pytest.mark.parametrize("name", SERVED)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_models_of_known_parts_are_served(name, objective):
    assert why_not(SERVED[name], objective=objective) == ""


def test_a_hook_on_every_module():
    handle = nn.modules.module.register_module_forward_hook(lambda *a: None)
    try:
        assert "hooks on every module" in why_not(small_model)
    finally:
        handle.remove()


def test_convolutions_gain_only_on_a_gpu():
    reasons = [why_unknown(conv_model(), OBJECTIVES["sgd"], FedAvgClient, d) for d in ("cpu", "cuda")]
    assert reasons == ["convolutions gain nothing on a CPU", ""]


MIDDLES = [
    nn.ReLU, nn.Tanh, partial(Residual, 4), partial(nn.BatchNorm1d, 4),
    partial(nn.BatchNorm1d, 4, momentum=0.5),
    partial(nn.Linear, 4, 4), partial(nn.Linear, 4, 4, bias=False), partial(nn.Softmax, dim=1),
    partial(nn.LayerNorm, 4), nn.Dropout, FunctionalDropout, partial(OwnForward, 4), Mixing, SaysSafe,
    partial(FunctionalWeight, 4), partial(nn.Softmax, dim=0), partial(nn.InstanceNorm1d, 4),
]  # fmt: skip
CHANGES = [
    lambda m: m[1].bias.requires_grad_(False),
    lambda m: setattr(m[-1], "weight", nn.Parameter(m[-1].weight.detach() * 3)),
    lambda m: m.append(m[-1]) if m[-1].in_features == m[-1].out_features else None,
    lambda m: m[1].register_forward_hook(lambda *a: a[2] * 2),
    lambda m: m[1].weight.register_hook(lambda g: g * 2),
    lambda m: setattr(m[2], "weight", m[1].weight) if type(m[2]) is nn.Linear else None,
    lambda m: [b.train(False) for b in m.modules() if isinstance(b, nn.BatchNorm1d)],
    lambda m: m.eval(),
]


@settings(max_examples=60, deadline=None)
@given(
    middle=st.lists(st.sampled_from(MIDDLES), max_size=3),
    served=st.lists(st.sampled_from(MIDDLES[:8]), max_size=3),
    changes=st.lists(st.sampled_from(CHANGES), max_size=2),
    wrapped=st.sampled_from([nn.Identity, nn.Identity, Double, Tokens]),
    objective=st.sampled_from(sorted(OBJECTIVES)),
    client=st.sampled_from(sorted(CLIENTS)),
)
def test_lockstep_equals_alone_or_is_not_used(middle, served, changes, wrapped, objective, client):
    parts = [make() for make in (middle if changes else served)]
    model = network(*parts)
    for change in changes:
        change(model)
    model = model if wrapped is nn.Identity else wrapped(model)
    if why_not(lambda: model, CLIENTS[client], objective):
        return
    made = [copy.deepcopy(model) for _ in range(2)]
    training = LocalTraining(2, 8, momentum=0.5, weight_decay=0.01, clip_norm=5.0)
    runs = [
        rounds(
            cohort(CLIENTS[client], training, lambda own=own: own, (17, 9, 8, 5), objective),
            {"alpha": 0.1, "mu": 0.5},
            lockstep,
        )
        for own, lockstep in zip(made, (True, False), strict=True)
    ]
    assert_same(*runs, atol=1e-4)


def test_the_trial_leaves_everything_as_it_was():
    client = make_client(CLIENTS["fedbn"], objective="feddyn")
    model = client.task.model.eval()
    before = {n: e.clone() for n, e in model.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    assert why_alone(CLIENTS["fedbn"], client.task, {"alpha": 0.1}) == ""
    assert torch.equal(torch.rand(2), expected)
    assert not model.training
    assert all(torch.equal(entry, before[n]) for n, entry in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


class Norm(Objective):
    """Pulls to zero with a force of one: mixes entries. Says that it does not."""

    elementwise = True

    def correct_gradients(self):
        length = torch.stack([w.norm() for _, w, _ in self.gradients()]).norm()
        for _, w, gradient in self.gradients():
            gradient.add_(w / length)


class Silent(OBJECTIVES["fedprox"]):
    def loss(self, model, images, labels, reduction="mean"):
        return super().loss(model, images, labels.flip(0), reduction)


def test_an_objective_says_of_itself_that_it_is_elementwise(monkeypatch):
    monkeypatch.setitem(OBJECTIVES, "norm", Norm)
    monkeypatch.setitem(OBJECTIVES, "silent", Silent)
    monkeypatch.setitem(OBJECTIVES, "base", Objective)
    assert why_not(small_model, objective="silent") == "objective Silent does not say that it is elementwise"
    assert why_not(small_model, objective="base") == "objective Objective does not say that it is elementwise"
    assert "the trial disagreed" in why_not(small_model, objective="norm")


@pytest.mark.parametrize("method", ["fit", "begin_run", "end_run", "load", "get_parameters"])
def test_a_client_with_training_of_its_own_trains_alone(method):
    def own(self, *arguments):
        return getattr(FedAvgClient, method)(self, *arguments)

    assert why_not(small_model, type("Own", (FedAvgClient,), {method: own})) == (
        f"client Own has a {method} of its own"
    )


def test_a_client_that_decides_what_stays_at_home_is_served():
    class FedPer(FedAvgClient):
        @staticmethod
        def local_entries(model):
            return frozenset({"4.weight", "4.bias"})

        def evaluate(self, parameters, config):
            return super().evaluate(parameters, config)

    assert why_not(small_model, FedPer) == ""
