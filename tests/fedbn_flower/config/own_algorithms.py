"""A rule, an objective, a client and a model that are nowhere in the project."""

import numpy as np
import torch
from torch import nn

from clients import FedAvgClient, Objective, setting
from strategies import PseudoGradientStrategy, Scaffold
from strategies import setting as own_setting


class Scaled(PseudoGradientStrategy):
    """x += scale D, in every other update."""

    scale: float = own_setting(1.0, gt=0, le=2, description="factor on the mean update")
    every: int = own_setting(1, ge=1, description="updates from one step to the next")

    def server_step(self, delta, state, round):
        return self.scale * delta if round.update % self.every == 0 else 0 * delta


class Pull(Objective):
    """f + 1/2 pull ||w||^2."""

    pull: float = setting(0.0, ge=0, description="weight")
    requires = {"client-optimizer": {"sgd"}}

    def correct_gradients(self):
        for _, w, gradient in self.gradients():
            gradient.add_(w, alpha=self.pull)


class Partly(FedAvgClient):
    """Says in its metrics what it was told."""

    report: float = setting(0.0, description="a number")

    def fit(self, parameters, config):
        parameters, count, metrics = super().fit(parameters, config)
        return parameters, count, metrics | {"told": self.report}


class Bounded(PseudoGradientStrategy):
    bound: float | None = own_setting(None, gt=0)

    def server_step(self, delta, state, round):
        return delta


class Half(PseudoGradientStrategy):
    requires = {"objective": {"Pull"}}

    def server_step(self, delta, state, round):
        return delta


class OtherHalf(Half):
    requires = {"objective": {"own.py:Pull"}}


class MyScaffold(Scaffold):
    """Goes where its base goes."""


class Untyped(Half):
    factor = own_setting(1.0)


class Listed(Half):
    parts: list = own_setting([1])


class Reserved(Half):
    run: float = own_setting(1.0)


class Confused(Half):
    requires = {"colour": {"red"}}


class Raising(PseudoGradientStrategy):
    """Raises within NumPy from its second update on."""

    def server_step(self, delta, state, round):
        return delta if round.update == 1 else np.stack([delta, None])


class Alike(PseudoGradientStrategy):
    pull: float = own_setting(0.5)

    def server_step(self, delta, state, round):
        return delta


class Needy(PseudoGradientStrategy):
    needed: float = own_setting(gt=0)

    def server_step(self, delta, state, round):
        return delta


class Stepless(PseudoGradientStrategy):
    pass


class Roundless(PseudoGradientStrategy):
    def server_step(self, delta, state):
        return delta


class Helpful(Alike):
    help: int = own_setting(1)


class Fragile(Alike):
    def __init__(self, **kwargs):
        raise KeyError("broken")


class Misspelt(FedAvgClient):
    @staticmethod
    def local_entries(model):
        return {"1.weigth"}


class Careless(FedAvgClient):
    @staticmethod
    def local_entries(model):
        return {model.head}


def raises(spec):
    raise RuntimeError("two\nlines")


def narrow(spec):
    return nn.Sequential(nn.Flatten(), nn.Linear(spec.size, 3))


class Pair(nn.Linear):
    def forward(self, x):
        return super().forward(x.flatten(1)), x


def pair(spec):
    return Pair(spec.size, spec.classes)


def frozen(spec):
    return thin(spec).requires_grad_(False)


def brain(spec):
    return thin(spec).to(torch.float8_e4m3fn)


def imaginary(spec):
    model = thin(spec)
    model.register_buffer("phase", torch.zeros(2, dtype=torch.complex64))
    return model


def hollow(spec):
    return thin(spec).to("meta")


def sparse(spec):
    model = thin(spec)
    model.register_buffer("edges", torch.eye(2).to_sparse())
    return model


def scripted(spec):
    return torch.nn.Sequential(torch.jit.script(thin(spec)))


def thin(spec):
    return nn.Sequential(nn.Flatten(), nn.Linear(spec.size, spec.classes))


def number(spec):
    return 3
