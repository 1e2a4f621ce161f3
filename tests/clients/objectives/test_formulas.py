"""Objectives against their papers' formulas, written out in float64, and laws of all of them."""

import numpy as np
import pytest
import torch
from flwr.app import RecordDict

from clients import LOSSES, LocalTraining

from ...quick import diagonal_quick
from ..helpers import CONFIG, two_rounds
from ..helpers import make_client as small_client
from ..networks import dropping
from ..written import CASES, TRAINING, At, check_rounds, cross_entropy, forward, here, make_client, usual

MU, RHO, T = 0.8, 0.2, 0.4


def similarity(a, b):
    return (a * b).sum(1) / ((a**2).sum(1) * (b**2).sum(1)).sqrt()


def moon(at: At):
    """The frozen models are in evaluation mode, each with BatchNorm of its own."""
    if at.previous is None:
        return usual(at)
    z = forward(at.w, at.inputs)[0]
    near, far = (
        (similarity(z, forward(entries, at.inputs, train=False)[0]) / T).exp()
        for entries in (at.x, at.previous)
    )
    return usual(at) - MU * (near / (near + far)).log().mean()


def feddecorr(at: At):
    """Every two features' correlation coefficient, squared; the five with themselves are 1."""
    z = forward(at.w, at.inputs)[0]
    z = z - z.mean(0)
    total = 0.0
    for a in z.T:
        for b in z.T:
            total = total + (a @ b) ** 2 / ((a @ a) * (b @ b))
    return usual(at) + MU * total / 25


def fedlc(at: At):
    """tau 0.7, classes of 20, 12 and 8 examples; the fourth is nowhere in the sum."""
    margins = torch.tensor([0.7 / 20**0.25, 0.7 / 12**0.25, 0.7 / 8**0.25], dtype=torch.float64)
    return cross_entropy(forward(at.w, at.inputs)[1][:, :3] - margins, at.targets).mean()


def fedrs(at: At):
    """a = 0.3: classes of 20, 12, 8 and 0 examples are scaled by 0.7 n / 20 + 0.3."""
    scale = torch.tensor([1.0, 0.72, 0.58, 0.3], dtype=torch.float64)
    return cross_entropy(scale * forward(at.w, at.inputs)[1], at.targets).mean()


def fedntd(at: At):
    """Example by example, class by class; the received model is in evaluation mode."""
    teacher, student = forward(at.x, at.inputs, train=False)[1], forward(at.w, at.inputs)[1]
    total = 0.0
    for i, y in enumerate(at.targets.tolist()):
        others = [c for c in range(teacher.shape[1]) if c != y]
        p, q = ((z[i, others] / 2).exp() for z in (teacher, student))
        p, q = p / p.sum(), q / q.sum()
        total = total + (p * (p / q).log()).sum()
    return usual(at) + MU * 2**2 * total / len(at.targets)


def fedgkd(at: At):
    """`previous` is the teacher, in evaluation mode."""
    q, teacher = (forward(w, at.inputs, w is at.w)[1].div(2).softmax(1) for w in (at.w, at.previous))
    return usual(at) + MU / 2 * 2**2 * (teacher * (teacher / q).log()).sum(1).mean()


def mean_of_two(received):
    """FedGKD's teacher: the mean of the last two models that were received; counts are the last one's."""
    first, last = received[-2:] if len(received) > 1 else received * 2
    return {n: (first[n] + e) / 2 if e.is_floating_point() else e for n, e in last.items()}


PROTOTYPES = np.random.default_rng(3).normal(size=(4, 5))
KNOWN = np.array([1, 0, 1, 0])
RECORDS = {"prototypes": {"prototypes": PROTOTYPES, "known": KNOWN}}


def fedproto(at: At):
    """The mean squared distance of a feature to its class's prototype; class 1 has none yet."""
    z, near = forward(at.w, at.inputs)[0], torch.from_numpy(PROTOTYPES)[at.targets]
    return usual(at) + MU * ((z - near) ** 2 * torch.from_numpy(KNOWN)[at.targets, None]).mean()


def uphill(gradient, point):
    g = gradient(point)
    return point + RHO * g / g.norm()


FORMULAS = {
    "moon": (moon, here, {"mu": MU, "moon-temperature": T}),
    "feddecorr": (feddecorr, here, {"decorr-beta": MU}),
    "fedlc": (fedlc, here, {"lc-tau": 0.7}),
    "fedrs": (fedrs, here, {"rs-a": 0.3}),
    "fedntd": (fedntd, here, {"ntd-beta": MU, "ntd-temperature": 2.0}),
    "fedgkd": (fedgkd, here, {"gkd-gamma": MU, "gkd-temperature": 2.0, "gkd-models": 2}),
    "fedproto": (fedproto, here, {"proto-lambda": MU}),
    "fedsam": (usual, uphill, {"rho": RHO}),
}


@pytest.fixture(autouse=True)
def without_epsilon(monkeypatch):
    monkeypatch.setattr("clients.objectives.features.EPSILON", 0.0)


@pytest.mark.parametrize(("name", "case"), diagonal_quick(sorted(FORMULAS.keys() - {"fedproto"}), CASES))
def test_three_rounds_are_those_of_the_formula(name, case):
    """Statistics, momentum, clipping and decay included; MOON's previous model is that of the end of the
    round before, and FedSAM steps from w by what is found uphill."""
    before = mean_of_two if name == "fedgkd" else None
    check_rounds(make_client(*case, name, training=TRAINING), *FORMULAS[name], before)


WEIGHTLESS = {
    "fedprox": {"mu": 0.0},
    "moon": {"mu": 0.0},
    "fedntd": {"ntd-beta": 0.0},
    "fedgkd": {"gkd-gamma": 0.0},
    "feddecorr": {"decorr-beta": 0.0},
    "fedproto": {},
    "fedsat": {},
}


@pytest.mark.parametrize(("name", "client"), diagonal_quick([*WEIGHTLESS], ["shared", "fedbn", "fedrep"]))
def test_without_its_weight_it_is_sgd(name, client):
    """Bit for bit, on the same loss: passes of other models move no statistics and draw nothing of dropout's
    numbers. FedProto has no weight before it receives prototypes, FedSat none at all."""
    found = []
    for objective, config in (("plain", {}), (name, WEIGHTLESS[name])):
        training = LocalTraining(2, 8, momentum=0.9, weight_decay=0.1)
        one = small_client(client, RecordDict(), dropping(), 0, training, objective)
        one.task.__dict__["loss"] = LOSSES["focal"]
        found.append(two_rounds(one, **{"client-lr": 0.01} | config))
    (plain, metrics), (other, of_other) = found
    for key, array in plain.items():
        np.testing.assert_array_equal(array, other[key], err_msg=str(key))
    assert [one["train-loss"] for one in metrics] == [one["train-loss"] for one in of_other]


@pytest.mark.parametrize("name", sorted(FORMULAS.keys() - {"fedsam"}))
def test_a_loss_by_example_has_the_mean_of_the_batchs(name):
    """And is that of the example alone, but for correlations, which are a batch's."""
    client = make_client("shared", False, name)
    model = client.task.model
    client.memory.write(
        name, {n: e.numpy() + 0.1 for n, e in model.state_dict().items()} if name == "moon" else {}
    )
    run = client.begin_run(dict(model.named_parameters()), CONFIG, RECORDS)
    for p in model.parameters():
        p.data += 0.1 * torch.arange(p.numel()).view_as(p).sin()
    inputs, targets = client.task.train.prepared(np.arange(9))
    each, mean = (run.objective.loss(model, inputs, targets, r)[0] for r in ("none", "mean"))
    assert each.shape == (9,)
    assert each.mean().item() == pytest.approx(mean.item())
    alone = [run.objective.loss(model, inputs[i : i + 1], targets[i : i + 1])[0].item() for i in range(9)]
    assert (each.tolist() == pytest.approx(alone)) == (name != "feddecorr")
