"""Objectives against drift: BatchNorm, dropout, divergence; rounds are in strategies/rules/test_drift.py."""

import copy

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from torch import nn
from torch.nn import functional

from clients import OBJECTIVES, LocalTraining, Received, setting
from clients.objectives import LocalWork

from ..helpers import CONFIG, make_client, received, small_model

SETTINGS = CONFIG | {"mu": 0.3, "alpha": 0.7}


class Reaches(nn.Module):
    """The loss does not reach ``idle``."""

    head = "used"

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.used, self.idle = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.used(x.flatten(1))


def test_fedprox_reports_the_length_of_sgds_steps_alone():
    """By hand, lr mu and momentum 1/2: v = 1, u = 1; v = 0.5 + 1 - 0.5, u = 2; v = 0.5 + 1 - 1, u = 2.5."""
    fedprox = OBJECTIVES["fedprox"]({}, {"mu": 0.5})
    assert fedprox.finish(LocalWork(3, 1.0, 0.5)).metrics == {"local-norm": 2.5}
    client = make_client("shared", training=LocalTraining(1, 8, "adam"), objective="fedprox")
    assert "local-norm" not in client.fit(client.get_parameters({}), SETTINGS)[2]


def test_an_unknown_setting_and_a_missing_one_are_refused():
    class Needs(OBJECTIVES["plain"]):
        force: float = setting(description="no default")

    with pytest.raises(ValueError, match="FedProx has no setting 'nu'; it has .'mu'."):
        OBJECTIVES["fedprox"]({}, {"nu": 1})
    with pytest.raises(ValueError, match="Needs needs a value of its setting 'force'"):
        Needs({}, {})


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_what_the_loss_does_not_reach_stays(name):
    """Whatever is remembered, received, or decays."""
    training = LocalTraining(2, 8, weight_decay=0.1)
    client = make_client("shared", model=Reaches(), training=training, objective=name)
    sevens = {n: np.full_like(client.task.initial[n], 7) for n in client.trained_names}
    if name == "fedspeed":  # what it never reached has g_i = 0; otherwise it sends what was held back
        sevens |= {n: np.zeros_like(a) for n, a in sevens.items() if n.startswith("idle")}
    if client.task.objective.remembers:
        kinds = {"fedgkd": ("0/",), "fedsmoo": ("lambda.", "mu.")}.get(name, ("",))
        client.memory.write(name, {kind + n: a for kind in kinds for n, a in sevens.items()})
    sent, *_ = client.fit(received(client, 2), SETTINGS)
    changed = {n: not np.array_equal(a, client.task.initial[n]) for n, a in sent.by_name().items()}
    assert changed == {"used.weight": True, "used.bias": True, "idle.weight": False, "idle.bias": False}


def test_a_client_that_diverges_keeps_its_memory():
    record = RecordDict()
    client = make_client("fedbn", record, objective="feddyn")
    start = client.get_parameters({})
    client.fit(start, SETTINGS)
    client.memory.commit()
    before = copy.deepcopy(record)
    with pytest.raises(FloatingPointError, match="training diverged"):
        client.fit(start, SETTINGS | {"client-lr": 1e30})
    assert record == before


@pytest.mark.parametrize("constant", [-np.inf, np.nan, np.finfo(np.float32).min])
def test_a_constant_that_is_not_finite_or_huge_is_no_divergence(constant):
    def client():
        model = small_model()
        model.register_buffer("mask", torch.tensor([0.0, constant]))
        return make_client("shared", model=model)

    sent, _, _ = client().fit(client().get_parameters({}), CONFIG)
    plain, _, _ = make_client("shared").fit(make_client("shared").get_parameters({}), CONFIG)
    mask, *others = sent  # the model's own buffer comes first
    np.testing.assert_array_equal(mask, np.array([0.0, constant], np.float32))
    for a, b in zip(others, plain, strict=True):
        np.testing.assert_array_equal(a, b)
    diverging = client()
    with pytest.raises(FloatingPointError, match="training diverged: (?!mask)"):
        diverging.fit(diverging.get_parameters({}), CONFIG | {"client-lr": 1e30})


def test_an_objective_that_leaves_a_memory_must_say_so(monkeypatch):
    """Where clients are known to remember nothing, nothing is kept for them."""
    monkeypatch.setattr(OBJECTIVES["feddyn"], "remembers", False)
    client = make_client("shared", objective="feddyn")
    with pytest.raises(TypeError, match="FedDyn returns a memory but does not set `remembers`"):
        client.fit(client.get_parameters({}), SETTINGS)


RATE, B1 = 0.1, 0.9


def asked(client, **settings):
    """The client's shared entries, c and m as sent, and its configuration."""
    entries = {n: e.numpy().copy() for n, e in client.task.model.state_dict().items()}
    rng = np.random.default_rng(3)
    c, m = (
        {n: rng.normal(size=entries[n].shape).astype(np.float32) for n in client.trained_names} for _ in "cm"
    )
    return entries, c, m, CONFIG | {"client-lr": RATE} | settings


def test_the_first_step_is_the_servers_own():
    """At w = x a batch's gradients cancel: with BatchNorm, which moves by one batch, and with dropout."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3))
    client = make_client("shared", model=model, objective="mime", training=LocalTraining(1, 0))
    entries, c, m, config = asked(client)
    update = client.fit(Received(entries, {"momentum": m, "gradient": c}), config)
    got, plain = update.arrays.by_name(), make_client("shared", model=copy.deepcopy(model))
    for name in client.trained_names:
        expected = entries[name] - RATE * (B1 * m[name] + (1 - B1) * c[name])
        np.testing.assert_allclose(got[name], expected, atol=1e-6, err_msg=name)
    inputs, _ = plain.task.train.prepared(np.arange(len(plain.task.train)))
    mean = functional.linear(inputs.flatten(1), *map(torch.tensor, (entries["1.weight"], entries["1.bias"])))
    np.testing.assert_allclose(got["2.running_mean"], 0.1 * mean.mean(0), atol=1e-6)
    assert got["2.num_batches_tracked"] == 1
    assert not update.records


def test_what_it_answers_first_is_the_gradient_of_all_examples():
    client = make_client("shared", objective="mime")
    entries, _, m, config = asked(client)
    answer = client.first_answer(Received(entries, {"momentum": m}), config)
    lite = make_client("shared", objective="mimelite").fit(Received(entries, {"momentum": m}), config)
    assert answer.keys() == {"gradient"}
    for name, found in answer["gradient"].items():
        np.testing.assert_array_equal(found, lite.records["gradient"][name])
    with pytest.raises(ValueError, match="Mime needs the record 'gradient', which was not received"):
        client.fit(Received(entries, {"momentum": m}), config)
    assert not make_client("shared").first_answer(Received(entries), config)


def test_it_is_that_of_all_examples_in_evaluation_mode():
    """BatchNorm goes by its running statistics, which the pass leaves alone."""
    client = make_client("shared", objective="mimelite", training=LocalTraining(1, 8))
    model = client.task.model
    with torch.no_grad():
        model[2].running_mean.add_(0.3)
        model[2].running_var.mul_(2)
    before = {name: entry.clone() for name, entry in model.state_dict().items()}
    zeros = {n: np.zeros_like(client.task.initial[n]) for n in client.trained_names}
    received = Received({n: e.numpy().copy() for n, e in before.items()}, {"momentum": zeros})
    settings = CONFIG | {
        "mime-optimizer": "momentum",
        "mime-beta-1": 0.5,
        "mime-beta-2": 0.5,
        "mime-tau": 1.0,
    }
    state = torch.get_rng_state()
    run = client.begin_run(dict(model.named_parameters()), settings, received.records)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(entry, before[name]) for name, entry in model.state_dict().items())
    inputs, targets = client.task.train.prepared(np.arange(len(client.task.train)))
    model.eval()
    loss = functional.cross_entropy(model(inputs), targets)
    expected = torch.autograd.grad(loss, [dict(model.named_parameters())[n] for n in client.trained_names])
    for name, gradient in zip(client.trained_names, expected, strict=True):
        np.testing.assert_allclose(run.objective.at_start[name], gradient, atol=1e-6)
    update = client.fit(received, settings)
    for name, gradient in zip(client.trained_names, expected, strict=True):
        np.testing.assert_allclose(update.records["gradient"][name], gradient, atol=1e-6)
