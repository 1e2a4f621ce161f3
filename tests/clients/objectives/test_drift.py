"""FedProx, FedDyn, SCAFFOLD, Mime and MimeLite: rounds by hand, and what is remembered."""

import copy

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from torch import nn
from torch.nn import functional

from clients import OBJECTIVES, FedAvgClient, FedBNClient, LocalTraining, LocalWork, Received

from ..helpers import CONFIG, batch_statistics, make_client, small_model

SETTINGS = CONFIG | {"mu": 0.3, "alpha": 0.7}


class Line(nn.Module):
    """One parameter, no data in it."""

    def __init__(self, start):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([start]))


def descend(objective, gradient, steps, rate):
    (w,) = objective.parameters.values()
    for _ in range(steps):
        w.grad = torch.tensor([gradient(w.item())])
        objective.correct_gradients()
        with torch.no_grad():
            w -= rate * w.grad
    return w.item()


def test_fedprox_by_hand():
    """grad f = w - 4, mu 1, rate 0.25, x = 0: w = 1, then 1 - 0.25 (-3 + 1) = 1.5."""
    model = Line(0.0)
    objective = OBJECTIVES["fedprox"](dict(model.named_parameters()), {"mu": 1.0})
    assert descend(objective, lambda w: w - 4, 2, 0.25) == pytest.approx(1.5, abs=1e-6)


def test_feddyn_by_hand():
    """grad f = w - 4, alpha 1, rate 0.25, two steps a round.

    Round 1, x = 0, g = 0: w = 1, 1.5; g = -1.5.
    Round 2, x = 2, g = -1.5: w = 2 - 0.25 (-2 + 1.5) = 2.125, then the gradient is -1.875 + 1.5 + 0.125 =
    -0.25: w = 2.1875; g = -1.5 - 0.1875 = -1.6875.
    """
    memory = None
    for x, w, g in ((0.0, 1.5, -1.5), (2.0, 2.1875, -1.6875)):
        objective = OBJECTIVES["feddyn"](dict(Line(x).named_parameters()), {"alpha": 1.0}, memory)
        assert descend(objective, lambda w: w - 4, 2, 0.25) == pytest.approx(w, abs=1e-6)
        memory = objective.finish(LocalWork(2, 0.25)).memory
        np.testing.assert_allclose(memory["w"], g, atol=1e-6)


def test_scaffold_by_hand():
    """grad f = w - 4, rate 0.25, two steps a round.

    Round 1, x = 0, c = c_i = 0: w = 1, 1.75; c_i = -1.75/0.5 = -3.5 (the mean of -4 and -3), the change too.
    Round 2, x = 2, c = -1, c_i = -3.5: the gradients are -2 + 2.5 = 0.5, w = 1.875; -2.125 + 2.5 = 0.375,
    w = 1.78125; c_i = -3.5 + 1 + 0.21875/0.5 = -2.0625 (the mean of -2 and -2.125), the change 1.4375.
    """
    memory = None
    for x, c, w, c_i, change in ((0.0, 0.0, 1.75, -3.5, -3.5), (2.0, -1.0, 1.78125, -2.0625, 1.4375)):
        received = {"control": {"w": np.array([c], np.float32)}}
        objective = OBJECTIVES["scaffold"](dict(Line(x).named_parameters()), {}, memory, received)
        assert descend(objective, lambda w: w - 4, 2, 0.25) == pytest.approx(w, abs=1e-6)
        outcome = objective.finish(LocalWork(2, 0.25))
        memory = outcome.memory
        np.testing.assert_allclose(memory["w"], c_i, atol=1e-6)
        np.testing.assert_allclose(outcome.records["control"]["w"], change, atol=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_scaffold_with_momentum_is_the_loop_of_niid_bench(momentum):
    """After each step of PyTorch's momentum SGD, w -= lr (c - c_i); c_i+ = c_i - c + (x - w) / (K lr)."""
    rate, decay, memory = 0.05, 0.1, None
    for x, c in ((0.0, 0.0), (2.0, -1.0), (1.0, 0.5)):
        c_i = 0.0 if memory is None else float(memory["w"][0])
        theirs = Line(x)
        optimizer = torch.optim.SGD(theirs.parameters(), rate, momentum, weight_decay=decay)
        ours = Line(x)
        objective = OBJECTIVES["scaffold-momentum"](
            dict(ours.named_parameters()), {"momentum": momentum}, memory,
            {"control": {"w": np.array([c], np.float32)}},
        )  # fmt: skip
        own = LocalTraining(momentum=momentum, weight_decay=decay).make_optimizer(ours.parameters(), rate)
        for _ in range(6):
            for model, step in ((theirs, optimizer), (ours, own)):
                step.zero_grad()
                (0.5 * (model.w - 4) ** 2).sum().backward()
                if model is ours:
                    objective.correct_gradients()
                step.step()
            with torch.no_grad():
                theirs.w -= rate * (c - c_i)
            assert ours.w.item() == pytest.approx(theirs.w.item(), abs=1e-5)
        memory = objective.finish(LocalWork(6, rate, momentum)).memory
        assert memory["w"][0] == pytest.approx(c_i - c + (x - theirs.w.item()) / (6 * rate), abs=1e-4)


@pytest.mark.parametrize(
    ("steps", "rate", "mu", "rho", "norm"),
    [
        (3, 0.5, 1.0, 0.0, 1 + 0.5 + 0.25),
        (2, 0.1, 0.5, 0.0, (1 - 0.95**2) / 0.05),
        (4, 0.1, 0.0, 0.0, 4),
        (2, 0.1, 0.0, 0.5, 1 + 1.5),
        (5, 0.1, 0.0, 0.9, (5 - 0.9 * (1 - 0.9**5) / 0.1) / 0.1),
        (3, 1.0, 0.5, 0.5, 1 + 1 + 0.5),
    ],
)
def test_fedprox_reports_the_work_that_fednova_divides_by(steps, rate, mu, rho, norm):
    """Wang et al. 2020, section 4: ``(1 - (1 - lr mu)^K) / (lr mu)``; at mu 0 K, or theirs for momentum.

    The last by hand, pull and rho 0.5: v = 1, u = 1; v = 0.5 + 1 - 0.5 = 1, u = 2; v = 0.5 + 1 - 1 = 0.5,
    u = 2.5.
    """
    objective = OBJECTIVES["fedprox"]({}, {"mu": mu})
    assert objective.finish(LocalWork(steps, rate, rho)).metrics["local-norm"] == pytest.approx(norm)
    assert objective.finish(LocalWork(steps, rate, None)).metrics == {}


@pytest.mark.parametrize(("optimizer", "momentum"), [("sgd", 0.0), ("sgd", 0.9), ("adam", 0.0)])
def test_the_work_is_that_of_the_clients_own_training(optimizer, momentum):
    """40 examples in batches of 8, twice; Adam's steps have no such norm."""
    training = LocalTraining(2, 8, optimizer, momentum)
    client = make_client(FedAvgClient, training=training, objective="fedprox")
    metrics = client.fit(client.get_parameters({}), SETTINGS | {"server-round": 2, "client-lr": 0.05})[2]
    u = v = 0.0
    for _ in range(10):
        v = momentum * v + 1 - 0.05 * 0.3 * u
        u += v
    assert metrics.get("local-norm") == (pytest.approx(u) if optimizer == "sgd" else None)


class Reaches(nn.Module):
    """The loss does not reach ``idle``."""

    head = "used"

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.used, self.idle = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.used(x.flatten(1))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_what_the_loss_does_not_reach_stays(name):
    """Whatever is remembered, received, or decays."""
    training = LocalTraining(2, 8, weight_decay=0.1)
    client = make_client(FedAvgClient, model=Reaches(), training=training, objective=name)
    control = {n: np.full_like(client.task.initial[n], 2) for n in client.trained_names}
    sevens = {n: np.full_like(a, 7) for n, a in control.items()}
    if name == "fedspeed":  # what it never reached has g_i = 0; otherwise it sends what was held back
        sevens |= {n: np.zeros_like(a) for n, a in sevens.items() if n.startswith("idle")}
    if client.task.objective.remembers:
        kinds = {"fedgkd": ("0/",), "fedsmoo": ("lambda.", "mu.")}.get(name, ("",))
        client.memory.write(name, {kind + n: a for kind in kinds for n, a in sevens.items()})
    names = ("control", "perturbation", "momentum", "second-moment", "gradient")
    records = {**dict.fromkeys(names, control), "batch-statistics": batch_statistics()}
    sent, *_ = client.fit(Received(client.get_parameters({}).by_name(), records), SETTINGS)
    changed = {n: not np.array_equal(a, client.task.initial[n]) for n, a in sent.by_name().items()}
    assert changed == {"used.weight": True, "used.bias": True, "idle.weight": False, "idle.bias": False}


@pytest.mark.parametrize("name", ["feddyn", "scaffold"])
def test_only_shared_trainable_parameters_are_remembered(name):
    record = RecordDict()
    client = make_client(FedBNClient, record, objective=name)
    shared = {n for n in client.shared_names if n in dict(client.task.model.named_parameters())}
    control = {n: np.zeros_like(client.task.initial[n]) for n in shared}
    client.fit(Received(client.get_parameters({}).by_name(), {"control": control}), SETTINGS)
    client.memory.commit()
    assert set(record[f"fedbn.{name}"]) == shared == {"1.weight", "1.bias", "4.weight", "4.bias"}


def test_a_client_that_diverges_keeps_its_memory():
    record = RecordDict()
    client = make_client(FedBNClient, record, objective="feddyn")
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
        return make_client(FedAvgClient, model=model)

    sent, _, _ = client().fit(client().get_parameters({}), CONFIG)
    plain, _, _ = make_client(FedAvgClient).fit(make_client(FedAvgClient).get_parameters({}), CONFIG)
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
    client = make_client(FedAvgClient, objective="feddyn")
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
    client = make_client(FedAvgClient, model=model, objective="mime", training=LocalTraining(1, 0))
    entries, c, m, config = asked(client)
    update = client.fit(Received(entries, {"momentum": m, "gradient": c}), config)
    got, plain = update.arrays.by_name(), make_client(FedAvgClient, model=copy.deepcopy(model))
    for name in client.trained_names:
        expected = entries[name] - RATE * (B1 * m[name] + (1 - B1) * c[name])
        np.testing.assert_allclose(got[name], expected, atol=1e-6, err_msg=name)
    inputs, _ = plain.task.train.prepared(np.arange(len(plain.task.train)))
    mean = functional.linear(inputs.flatten(1), *map(torch.tensor, (entries["1.weight"], entries["1.bias"])))
    np.testing.assert_allclose(got["2.running_mean"], 0.1 * mean.mean(0), atol=1e-6)
    assert got["2.num_batches_tracked"] == 1
    assert not update.records


def test_further_steps_have_the_difference_of_a_batchs_gradients():
    client = make_client(
        FedAvgClient,
        model=nn.Sequential(nn.Flatten(), nn.Linear(4, 3)),
        objective="mime",
        training=LocalTraining(3, 0),
    )
    entries, c, m, config = asked(client)
    inputs, targets = client.task.train.prepared(np.arange(len(client.task.train)))

    def gradient(w, b):
        parts = [torch.tensor(a, requires_grad=True) for a in (w, b)]
        loss = functional.cross_entropy(functional.linear(inputs.flatten(1), *parts), targets)
        return [g.numpy() for g in torch.autograd.grad(loss, parts)]

    names = ["1.weight", "1.bias"]
    x = [entries[n] for n in names]
    at_x, w = gradient(*x), list(x)
    for _ in range(3):
        found = zip(names, w, gradient(*w), at_x, strict=True)
        w = [v - RATE * (B1 * m[n] + (1 - B1) * (g - g_x + c[n])) for n, v, g, g_x in found]
    update = client.fit(Received(entries, {"momentum": m, "gradient": c}), config)
    for name, expected in zip(names, w, strict=True):
        np.testing.assert_allclose(update.arrays.by_name()[name], expected, atol=1e-6)


def test_what_it_answers_first_is_the_gradient_of_all_examples():
    client = make_client(FedAvgClient, objective="mime")
    entries, _, m, config = asked(client)
    answer = client.first_answer(Received(entries, {"momentum": m}), config)
    lite = make_client(FedAvgClient, objective="mimelite").fit(Received(entries, {"momentum": m}), config)
    assert answer.keys() == {"gradient"}
    for name, found in answer["gradient"].items():
        np.testing.assert_array_equal(found, lite.records["gradient"][name])
    with pytest.raises(ValueError, match="Mime needs the record 'gradient', which was not received"):
        client.fit(Received(entries, {"momentum": m}), config)
    assert not make_client(FedAvgClient).first_answer(Received(entries), config)


def test_it_is_that_of_all_examples_in_evaluation_mode():
    """BatchNorm goes by its running statistics, which the pass leaves alone."""
    client = make_client(FedAvgClient, objective="mimelite", training=LocalTraining(1, 8))
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
