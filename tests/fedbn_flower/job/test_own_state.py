"""What a module keeps outside its state dict is no other client's."""

import math
from collections import deque
from functools import partial
from threading import Lock

import numpy as np
import pytest
import torch
from torch import nn

from fedbn_flower import simulate
from fedbn_flower.clients import Loss
from fedbn_flower.clients.modules.first_values import KEPT, begin_anew, keep_first_values
from fedbn_flower.clients.problems.evaluation import evaluate_splits
from fedbn_flower.config.making import run_config
from fedbn_flower.core.errors import UserError
from fedbn_flower.core.input_spec import InputSpec
from fedbn_flower.job.checks import own_state
from fedbn_flower.job.held_out import whole_split
from fedbn_flower.job.initial_model import initial_model
from fedbn_flower.job.inputs import inputs_of


class Net(nn.Module):
    """Scales its outputs by what it keeps, in one of many ways."""

    def __init__(self, spec):
        super().__init__()
        self.layer = nn.Linear(math.prod(spec.shape), spec.outputs)
        self.kept()

    def kept(self):
        pass

    def forward(self, x):
        return self.layer(x.flatten(1)) * (1 + self.step())


class Buffer(Net):
    def kept(self):
        self.register_buffer("seen", torch.zeros(1), persistent=False)

    def step(self):
        self.seen += 0.1
        return self.seen.clone()


class Replaced(Buffer):
    def step(self):
        self.seen = self.seen + 0.1
        return self.seen


class Late(Net):
    def step(self):
        if not hasattr(self, "seen"):
            self.register_buffer("seen", torch.zeros(1), persistent=False)
        self.seen += 0.1
        return self.seen.clone()


class Counter(Net):
    def kept(self):
        self.count = 0

    def step(self):
        self.count += 1
        return self.count / 10


class Locked(Counter):
    def kept(self):
        vars(self).update({f"lock-{i}": Lock() for i in range(9)}, count=0)  # which nobody can copy


class Lazy(Net):
    def step(self):
        self.count = getattr(self, "count", 0) + 1
        return self.count / 10


class Moving(Net):
    def kept(self):
        self.average = torch.zeros(())

    def step(self):
        self.average.mul_(0.9).add_(0.1)
        return self.average.clone()


class History(Net):
    def kept(self):
        self.past = {"steps": [], "last": deque(maxlen=3)}

    def step(self):
        self.past["steps"].append(1)
        self.past["last"].append(0.1)
        return len(self.past["steps"]) / 10 + sum(self.past["last"])


class Random(Net):
    def kept(self):
        self.rng = np.random.default_rng(0)

    def step(self):
        return float(self.rng.random())


class Hooked(Net):
    def kept(self):
        self.calls = calls = []
        self.register_forward_pre_hook(lambda module, inputs: calls.append(1))

    def step(self):
        return len(self.calls) / 10


class Inner(Net):
    def kept(self):
        self.inner = nn.Identity()
        self.inner.register_forward_hook(
            lambda module, x, y: setattr(module, "n", getattr(module, "n", 0) + 1)
        )

    def step(self):
        self.inner(torch.zeros(()))
        return self.inner.n / 10


KINDS = [Buffer, Replaced, Late, Counter, Locked, Lazy, Moving, History, Random, Hooked, Inner]
SPEC = InputSpec((1, 8, 8), 10)
SMALL = {"dataset": "digits", "num-clients": 2, "fast": "off", "rounds": 2}


@pytest.mark.parametrize("kind", KINDS)
def test_a_module_begins_anew_as_it_began(kind):
    model, x = kind(SPEC), torch.ones(2, 1, 8, 8)
    keep_first_values(model)
    first, second = model(x), model(x)
    assert not torch.equal(first, second)
    for _ in range(2):
        begin_anew(model)
        assert torch.equal(model(x), first)
        assert torch.equal(model(x), second)


def test_what_is_called_and_objects_of_pytorch_stay_the_same():
    model = Net(SPEC)
    held = {"call": partial(max, 0), "handle": model.register_forward_hook(lambda *_: None)}
    vars(model).update(held)
    keep_first_values(model)
    begin_anew(model)
    assert all(vars(model)[name] is value for name, value in held.items())


def test_a_tensor_is_put_back_in_place_and_what_is_deleted_comes_back():
    model, held = Net(SPEC), torch.zeros(2)
    vars(model).update(held=held, gone=1)
    keep_first_values(model)
    held.add_(1)
    del model.gone
    assert vars(model)[KEPT].changed() == ["gone", "held"]
    begin_anew(model)
    assert model.held is held
    assert held.tolist() == [0, 0]
    assert model.gone == 1


def inputs_with(**keys):
    return inputs_of(run_config({**SMALL, **keys}))


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_client_does_does_not_depend_on_who_was_there_before(kind):
    inputs = inputs_with(model=f"{__file__}:{kind.__name__}")
    here, there = ([own_state._step(inputs, client) for client in order] for order in ((0, 1, 0), (1, 0)))
    assert here == [there[1], there[0], here[0]]
    assert here[0] != here[1]


@pytest.mark.parametrize(
    ("kind", "name"),
    [(Buffer, "seen"), (Late, "seen"), (Counter, "count"), (History, "past"), (Lazy, "count")],
)
def test_a_line_names_what_begins_anew(kind, name):
    (line,) = own_state.warn_about_own_state(inputs_with(model=f"{__file__}:{kind.__name__}"))
    assert line.startswith(f"model: '{__file__}:{kind.__name__}' keeps {name} outside its state dict")


class Stash(Net):
    """Shows what it came to, and never reads it."""

    def step(self):
        self.shown = self.layer.weight.norm()
        return 0


class Outside(Net):
    """Keeps a number where no module has it."""

    def step(self):
        SEEN.append(1)
        return len(SEEN) / 10


SEEN: list[int] = []


class Counting(Loss):
    """Weighs by the number of batches that all of the process have seen."""

    seen = 0

    def __call__(self, outputs, targets, reduction="mean"):
        Counting.seen += 1
        return super().__call__(outputs, targets, reduction) * Counting.seen


def test_what_no_result_goes_by_is_no_warning():
    for keys in ({"model": f"{__file__}:Stash"}, {"model": "mlp-bn"}, {"client": "fedbn", "model": "2nn"}):
        assert [*own_state.warn_about_own_state(inputs_with(**keys))] == []


@pytest.mark.parametrize(
    "keys", [{"model": "Outside"}, {"loss": "Counting"}, {"model": "Stash", "loss": "Counting"}]
)
def test_what_cannot_begin_anew_is_refused(keys):
    """Which of several the state is of, nobody knows: all are named."""
    inputs = inputs_with(**{key: f"{__file__}:{name}" for key, name in keys.items()})
    named = " with ".join(f"{key}:? .*{name}'" for key, name in keys.items())
    with pytest.raises(UserError, match=f"^{named} gives another result when a step is repeated"):
        [*own_state.warn_about_own_state(inputs)]


def test_a_result_is_that_of_the_loaded_model():
    keys = {key.replace("-", "_"): value for key, value in SMALL.items()}
    result = simulate(model=Counter, **keys, eval_data="global", backend="inline")
    inputs = inputs_with()
    found = evaluate_splits(
        result.model(), {"test": whole_split(inputs, "test")}, "test", inputs.dataset.problem
    )
    assert found["loss"] == pytest.approx(result.summary["global"]["loss"], rel=1e-6)


class Extra(Net):
    """Has what is no tensor in its state dict."""

    def get_extra_state(self):
        return {"count": 1}

    def set_extra_state(self, state):
        pass


def test_a_state_that_cannot_be_averaged_is_refused_in_a_line():
    with pytest.raises(UserError, match="model: .*get_extra_state: it cannot be averaged"):
        initial_model(f"{__file__}:Extra", SPEC, False, 0)
