"""Small networks: what lockstep serves, what it does not know, and what only a trial shows."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional

from .helpers import small_model


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


class Looks(nn.Module):
    """Another function of fewer examples than a bound, as a shortcut for small batches may be."""

    lockstep_safe = True  # which is not true

    def __init__(self, bound, only_training=False):
        super().__init__()
        self.bound = bound
        self.only_training = only_training

    def forward(self, x):
        looks = self.training or not self.only_training
        return 0.5 * x if looks and len(x) < self.bound else x


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
    "frozen": changed(lambda m: m[1].weight.requires_grad_(False)),
    "safe block": lambda: network(Residual(4), nn.Tanh(), nn.BatchNorm1d(4)),
    "softmax": lambda: nn.Sequential(network(), nn.Softmax(dim=1)),
    "pooling": lambda: nn.Sequential(nn.MaxPool2d(1), network()),
}


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


def dropping():
    """BatchNorm, dropout, and one that draws in evaluation mode too."""
    torch.manual_seed(0)
    body = nn.Flatten(), nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.3), FunctionalDropout()
    return nn.Sequential(*body, nn.Linear(6, 3))
