"""MOON against Li et al. 2021: towards the received model's features, away from the last round's own."""

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from clients import CLIENTS, OBJECTIVES, FedAvgClient, FedBNClient, Local, LocalTraining, Loss

from ..helpers import CONFIG, make_examples, small_model
from ..helpers import make_client as small_client
from ..networks import dropping
from ..written import CASES, TRAINING, At, check_gradient, check_rounds, forward, make_client, usual

MU, T = 0.8, 0.4
SETTINGS = {"mu": MU, "moon-temperature": T}


def similarity(a, b):
    return (a * b).sum(1) / ((a**2).sum(1) * (b**2).sum(1)).sqrt()


def written(at: At):
    """The frozen models are in evaluation mode, each with BatchNorm of its own."""
    if at.previous is None:
        return usual(at)
    z = forward(at.w, at.inputs)[0]
    near, far = (
        (similarity(z, forward(entries, at.inputs, train=False)[0]) / T).exp()
        for entries in (at.x, at.previous)
    )
    return usual(at) - MU * (near / (near + far)).log().mean()


@pytest.mark.parametrize("case", CASES)
def test_its_gradient_is_that_of_the_formula(case):
    check_gradient(make_client(*case, "moon"), written, config=SETTINGS)


@pytest.mark.parametrize("case", CASES)
def test_three_rounds_are_those_of_the_formula(case):
    """A later one's previous model is that of the end of the one before, BatchNorm included."""
    check_rounds(make_client(*case, "moon", training=TRAINING), written, config=SETTINGS)


class Line(nn.Module):
    """What goes into the head is its parameter, times the input."""

    def __init__(self, *z):
        super().__init__()
        self.z = nn.Parameter(torch.tensor(z))
        self.last = nn.Linear(len(z), 2)
        self.head = "last"

    def forward(self, x):
        return self.last(x * self.z)


class Nothing(Loss):
    def __call__(self, output, targets, reduction="mean"):
        return 0 * output.sum()


def contrast(z, received, previous, mu=1.0, temperature=0.5):
    """MOON's loss without f of one example with these features."""
    model = Line(*previous)
    memory = {n: e.numpy().copy() for n, e in model.state_dict().items()}
    model.z.data = torch.tensor(received)
    objective = OBJECTIVES["moon"](
        dict(model.named_parameters()),
        {"mu": mu, "temperature": temperature},
        memory,
        local=Local(model, make_examples(), Nothing()),
    )
    model.z.data = torch.tensor(z)
    return objective.loss(model, torch.ones(1, len(z)), torch.tensor([0]))[0].item()


@pytest.mark.parametrize(
    ("z", "expected"), [((2.0, 0.0), np.log1p(np.exp(-2))), ((0.0, 2.0), np.log1p(np.exp(2)))]
)
def test_by_hand(z, expected):
    """z_x = (1, 0), z_prev = (0, 3), T 1/2. At z_x: similarities 1 and 0, -ln(e^2 / (e^2 + 1)); at z_prev the
    other way round, -ln(1 / (1 + e^2)): it costs to stay where one was."""
    assert contrast(z, (1.0, 0.0), (0.0, 3.0)) == pytest.approx(expected, rel=1e-6)
    assert contrast(z, (1.0, 0.0), (0.0, 3.0), mu=0.3) == pytest.approx(0.3 * expected, rel=1e-6)


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 10))
def test_only_directions_count(seed, scale):
    z, x, previous = np.random.default_rng(seed).normal(size=(3, 4)).tolist()
    expected = contrast(z, x, previous)
    assert contrast([scale * a for a in z], x, previous) == pytest.approx(expected, rel=1e-3)
    assert contrast(z, [scale * a for a in x], previous) == pytest.approx(expected, rel=1e-3)
    assert contrast(z, x, x) == pytest.approx(np.log(2), rel=1e-5)


def trained(objective, cls, config, rounds, make=dropping):
    client = small_client(cls, model=make(), training=LocalTraining(2, 8), objective=objective)
    answers = []
    for server_round in range(1, rounds + 1):
        arrays, _, metrics = client.fit(
            client.get_parameters({}), CONFIG | config | {"server-round": server_round}
        )
        client.memory.commit()
        own = client.memory.read("local") or {}
        answers.append([*arrays, *own.values(), metrics["train-loss"]])
    return answers


@pytest.mark.sampled(5)
@pytest.mark.parametrize("cls", CLIENTS.values())
def test_with_mu_zero_it_is_sgd(cls):
    """Bit for bit: frozen passes move no statistics and draw nothing of dropout's numbers."""
    for a, b in zip(trained("plain", cls, {}, 3), trained("moon", cls, {"mu": 0.0}, 3), strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


def test_a_first_round_is_that_of_sgd_and_a_second_is_not():
    plain, moon = trained("plain", FedBNClient, {}, 2), trained("moon", FedBNClient, {}, 2)
    for x, y in zip(plain[0], moon[0], strict=True):
        np.testing.assert_array_equal(x, y)
    assert any(not np.array_equal(x, y) for x, y in zip(plain[1], moon[1], strict=True))


def test_the_whole_trained_model_is_remembered_once_it_is_committed():
    record = RecordDict()
    client = small_client(FedBNClient, record, objective="moon")
    sent = client.fit(client.get_parameters({}), CONFIG)[0]
    assert "fedbn.moon" not in record
    client.memory.commit()
    kept = client.memory.read("moon")
    assert kept.keys() == client.task.initial.keys()
    assert all(kept[n].dtype == client.task.initial[n].dtype for n in kept)
    for name, array in sent.by_name().items():
        np.testing.assert_array_equal(kept[name], array)
    for name, array in client.memory.read("local").items():
        np.testing.assert_array_equal(kept[name], array)


def test_a_round_that_fails_leaves_the_model_of_the_one_before():
    client = small_client(FedBNClient, objective="moon")
    start = client.get_parameters({})
    client.fit(start, CONFIG)
    client.memory.commit()
    before = client.memory.read("moon")
    with pytest.raises(FloatingPointError):
        client.fit(start, CONFIG | {"server-round": 2, "client-lr": 1e30})
    client.memory.commit()
    after = client.memory.read("moon")
    assert all(np.array_equal(before[n], after[n]) for n in before)


def test_features_that_are_all_zero_have_a_gradient():
    """A ReLU that lets nothing through: the similarity is 0, and nothing is not a number."""
    model = small_model()
    client = small_client(FedAvgClient, model=model, objective="moon")
    with torch.no_grad():
        model[2].bias.fill_(-100)
    start = client.get_parameters({})
    for server_round in (1, 2):
        sent = client.fit(start, CONFIG | {"server-round": server_round})[0]
        client.memory.commit()
        assert all(np.isfinite(a).all() for a in sent)


def test_modes_and_generators_are_as_they_were():
    client = small_client(FedAvgClient, model=dropping(), objective="moon")
    client.memory.write("moon", client.task.initial)
    model = client.task.model
    run = client.begin_run(dict(model.named_parameters()), CONFIG, {})
    inputs, targets = client.task.train.prepared(np.arange(8))
    model.train()
    model[2].eval()
    modes = [m.training for m in model.modules()]
    torch.manual_seed(7)
    expected = torch.get_rng_state()
    model(inputs)
    drawn = torch.get_rng_state()
    torch.set_rng_state(expected)
    run.objective.loss(model, inputs, targets)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert [m.training for m in model.modules()] == modes
