"""DP-SGD: gradients by hand and by Opacus, noise by its moments, batches by their sizes, attacks."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from clients import LocalTraining, Received
from clients.losses import LOSSES, Loss
from clients.modules.dp_sgd import ExampleMechanism, obstacle
from clients.modules.local_dp import LocalMechanism
from clients.objectives import OBJECTIVES, Local, Objective
from clients.problems import Regression
from clients.training import LocalRun, train_model

from ..helpers import CONFIG, make_client, make_examples, small_model


class Numbers:
    """Public numbers, for tests."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)

    def uniform(self, count):
        return self.rng.random(count)

    def normal(self, count):
        return self.rng.normal(size=count)


def mechanism(clip=1e6, noise=0.0, seed=0):
    return ExampleMechanism(clip, noise, Numbers(seed))


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.Tanh(), nn.GroupNorm(1, 5), nn.Linear(5, 3))


def batch(count=7):
    inputs, targets = make_examples(count).prepared(np.arange(count))
    return inputs, targets


def gradients(model):
    return [p.grad.clone() for p in model.parameters()]


def one_by_one(model, inputs, targets, clip, expected, loss=nn.functional.cross_entropy):
    """The sum of clipped gradients, by a loop of backward passes."""
    sums = [torch.zeros_like(p) for p in model.parameters()]
    for i in range(len(inputs)):
        model.zero_grad()
        loss(model(inputs[i : i + 1]), targets[i : i + 1]).backward()
        norm = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters()))
        for total, p in zip(sums, model.parameters(), strict=True):
            total.add_(p.grad, alpha=min(1.0, clip / norm))
    return [total / expected for total in sums]


@pytest.mark.parametrize("clip", [1e6, 1.0, 0.05])
def test_gradients_are_clipped_one_by_one(clip):
    model, (inputs, targets) = network(), batch()
    expected = one_by_one(model, inputs, targets, clip, 5)
    loss, output = mechanism(clip).backward(model, Objective({}, {}), inputs, targets, 5)
    for got, wanted in zip(gradients(model), expected, strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(output, model(inputs).detach())
    torch.testing.assert_close(loss, nn.functional.cross_entropy(output, targets))


def linear_regression():
    """A model of w = (1, -1), b = 0.5 and its objective: the gradient of (w x + b - y)^2 is 2 r (x, 1)."""
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -1.0]]))
        model.bias.fill_(0.5)
    return model, Objective({}, {}, problem=Regression())


def test_a_large_batch_is_taken_in_parts(monkeypatch):
    model, (inputs, targets) = network(), batch(40)
    mechanism(0.3).backward(model, Objective({}, {}), inputs, targets, 8)
    whole = gradients(model)
    monkeypatch.setattr("clients.modules.dp_sgd.AT_A_TIME", 150)
    mechanism(0.3).backward(model, Objective({}, {}), inputs, targets, 8)
    for got, wanted in zip(gradients(model), whole, strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-6, rtol=1e-5)


def test_noise_has_the_deviation_z_c_over_b():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 30_000))
    inputs, targets = batch(0)
    loss, _ = mechanism(0.5, 3.0).backward(model, Objective({}, {}), inputs, targets, 10)
    found = torch.cat([g.flatten() for g in gradients(model)])
    assert found.std() == pytest.approx(3.0 * 0.5 / 10, rel=0.01)
    assert abs(found.mean()) < 0.001
    assert loss == 0


def test_a_gradient_that_is_not_finite_counts_nothing():
    model, (inputs, targets) = network(), batch(4)
    rest = one_by_one(model, inputs[1:], targets[1:], 0.3, 4)
    inputs[0] = math.nan
    mechanism(0.3).backward(model, Objective({}, {}), inputs, targets, 4)
    for got, wanted in zip(gradients(model), rest, strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-6, rtol=1e-5)


def test_batches_are_poisson_samples():
    sizes = [len(b) for b in mechanism().batches(50, 10, 4000)]
    assert len(sizes) == 4000
    assert np.mean(sizes) == pytest.approx(10, rel=0.01)
    assert np.var(sizes) == pytest.approx(50 * 0.2 * 0.8, rel=0.05)
    assert [len(b) for b in mechanism().batches(5, 5, 3)] == [5, 5, 5]


class TestTraining:
    def run(self, objective="plain", **settings):
        client = make_client("shared", model=network(), training=LocalTraining(2, 10), objective=objective)
        rounds = {"private": lambda server_round: mechanism(0.5, 1.0, server_round), **settings}
        vars(client.task).update(rounds)
        return client

    def received(self, client, objective):
        sent = client.get_parameters({})
        if objective != "scaffold":
            return sent
        control = {n: np.zeros(p.shape, np.float32) for n, p in client.task.model.named_parameters()}
        return Received(sent.by_name(), {"control": control})

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("objective", ["plain", "fedprox", "feddyn", "scaffold", "fedntd", "moon"])
    def test_every_objective_that_post_processes_trains(self, objective):
        client = self.run(objective)
        for server_round in (1, 2):
            config = CONFIG | {"server-round": server_round}
            update = client.fit(self.received(client, objective), config)
        assert update.metrics["local-steps"] == 8
        assert all(np.isfinite(array).all() for array in update.arrays)

    def test_the_public_seed_decides_nothing(self):
        first, second, third = self.run(), self.run(), self.run()
        vars(second.task).update(seed=(99, 0))
        vars(third.task).update(private=lambda server_round: mechanism(0.5, 1.0, 77))
        a, b, c = (client.fit(client.get_parameters({}), CONFIG)[0] for client in (first, second, third))
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)
        assert any((x != y).any() for x, y in zip(a, c, strict=True))

    def test_a_step_has_the_noise_and_no_more_of_the_examples_than_the_clip(self):
        """At a rate of 1: without noise the model moves by c at most, with it an entry by about z c / 40."""
        clip, noise, examples = 1e-3, 3e6, make_examples()
        for sigma, least, most in ((0.0, 1e-5, clip), (noise, 0.6, 1.4)):
            model = network()
            before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
            how = LocalTraining(1, 0), Objective({}, {}), 1.0, (0,)
            train_model(model, LocalRun(examples, *how, mechanism=mechanism(clip, sigma)))
            moved = nn.utils.parameters_to_vector(model.parameters()).detach() - before
            unit = moved.std() / (sigma * clip / len(examples)) if sigma else moved.norm()
            assert least < unit < most

    def test_without_noise_and_clipping_full_batches_are_gradient_descent(self):
        plain, private = network(), network()
        for model, how in ((plain, None), (private, mechanism())):
            run = LocalRun(make_examples(), LocalTraining(3, 0), Objective({}, {}), 0.1, (0,), mechanism=how)
            train_model(model, run)
        for got, wanted in zip(private.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["fedntd", "moon"])
def test_terms_of_one_example_are_those_of_a_batch(name):
    """Mean over a batch of FedNTD's and MOON's losses, whose terms are by example."""
    model, (inputs, targets) = network(), batch()
    memory = {n: e.numpy() + 0.1 for n, e in network(1).state_dict().items()}
    local = Local(model, make_examples(), Loss())
    objective = OBJECTIVES[name]({}, {}, memory, local=local)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.1)
    objective.loss(model, inputs, targets)[0].backward()
    wanted = gradients(model)
    mechanism().backward(model, objective, inputs, targets, len(inputs))
    for got, expected in zip(gradients(model), wanted, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-4)


def test_what_is_refused():
    fits = {name for name, objective in OBJECTIVES.items() if not obstacle(network(), objective, Loss)}
    assert fits == {
        "plain", "fedprox", "feddyn", "scaffold", "feddc", "fedadmm", "fedcm", "fedacg", "fedntd", "fedgkd",
        "moon",
    }  # fmt: skip
    fits = {name for name, loss in LOSSES.items() if not obstacle(network(), OBJECTIVES["plain"], loss)}
    assert "focal" in fits
    assert fits.isdisjoint({"class-balanced", "logit-adjusted", "weighted-bce"})
    found = obstacle(small_model(), OBJECTIVES["plain"], Loss)
    assert found == "BatchNorm mixes examples, as in the layer '2'"
    bare = nn.Sequential(nn.BatchNorm1d(4, affine=False, track_running_stats=False))
    assert obstacle(bare, OBJECTIVES["plain"], Loss)

    class Own(OBJECTIVES["plain"]):
        pass

    assert obstacle(network(), Own, Loss) == "objective Own does not set `example_wise`"


# ---- units: all examples of one are protected together --------------------------------------------


FOUR = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
LABELS = torch.tensor([[0.5], [0.0], [1.5], [0.0]])
"""Residuals 2, -0.5, -1 and 0.5; gradients (8, 0, 4), (0, -1, -1), (-2, -2, -2) and (0, 0, 1)."""


@pytest.mark.parametrize("at_a_time", [2**24, 3, 6, 9])
def test_units_of_three_examples_and_of_one_by_hand(monkeypatch, at_a_time):
    """The first three have the mean (2, -1, 1/3), of length sqrt(46)/3 = 2.26; the last one has length 1.

    Three parameters: the batch is also taken in parts of one, two and three examples, which cut the unit.
    """
    monkeypatch.setattr("clients.modules.dp_sgd.AT_A_TIME", at_a_time)
    units = np.array([0, 0, 0, 1])
    for clip in (1e6, 1.5, 0.5):
        factor, last = min(1.0, clip / (math.sqrt(46) / 3)), min(1.0, clip)
        model, objective = linear_regression()
        loss, output = mechanism(clip).backward(model, objective, FOUR, LABELS, 1, units)
        np.testing.assert_allclose(model.weight.grad[0], [2 * factor, -factor], rtol=1e-5)
        np.testing.assert_allclose(model.bias.grad, [factor / 3 + last], rtol=1e-5)
        assert loss == pytest.approx((4 + 0.25 + 1 + 0.25) / 4)
        np.testing.assert_allclose(output[:, 0], [2.5, -0.5, 0.5, 0.5])


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    left_out=st.integers(0, 4),
    scale=st.sampled_from([1e-3, 1.0, 1e3, 1e30]),
    clip=st.sampled_from([0.01, 1.0]),
    at_a_time=st.sampled_from([2**24, 150]),
)
def test_a_whole_unit_moves_a_sum_by_c_at_most(sizes, left_out, scale, clip, at_a_time):
    """Whatever its examples are, and however many; one that is not finite makes its unit count 0."""
    units = np.repeat(np.arange(len(sizes)), sizes)
    inputs, targets = batch(len(units))
    inputs = inputs * scale
    rest = units != left_out % len(sizes)
    sums = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clients.modules.dp_sgd.AT_A_TIME", at_a_time)
        for some in (rest, np.ones(len(units), bool)):
            model, keep = network(), torch.from_numpy(some)
            mechanism(clip).backward(model, Objective({}, {}), inputs[keep], targets[keep], 1, units[some])
            sums.append(torch.cat([g.flatten() for g in gradients(model)]).double())
    assert (sums[1] - sums[0]).norm() <= clip * (1 + 1e-5 * len(sizes))  # the sum itself is rounded


def test_a_unit_with_a_gradient_that_is_not_finite_counts_nothing():
    model, objective = linear_regression()
    broken = FOUR.clone()
    broken[1] = math.nan
    mechanism(1e6).backward(model, objective, broken, LABELS, 1, np.array([0, 0, 0, 1]))
    np.testing.assert_allclose(model.weight.grad[0], [0, 0])
    np.testing.assert_allclose(model.bias.grad, [1])


def unit_run(units, batch_size, share=1.0):
    training = LocalTraining(2, batch_size)
    how = mechanism(0.5, 1.0)
    return LocalRun(
        make_examples(), training, Objective({}, {}), 0.1, (0,), share, mechanism=how, units=units
    )


def test_batches_have_whole_units_and_their_numbers_count():
    """40 examples of 8 units, 2 expected in a batch: 4 steps an epoch, with all examples of some units."""
    units = np.tile(np.arange(8), 5)
    run = unit_run(units, 2)
    epochs = list(run.epochs(run.generator()))
    assert [len(batches) for batches in epochs] == [4, 4]
    sizes = []
    for taken in (one for batches in epochs for one in batches):
        chosen = set(units[taken].tolist())
        assert sorted(taken) == np.flatnonzero(np.isin(units, [*chosen])).tolist()
        assert list(run.units_of(taken)) == sorted(units[taken])
        sizes.append(len(chosen))
    assert len(set(sizes)) > 1
    assert (run.batch_size, unit_run(units, 0).batch_size, unit_run(units, 100).batch_size) == (2, 8, 8)


@pytest.mark.parametrize("batch_size", [0, 7, 13])
def test_training_with_units_of_one_example_each_has_the_bits_of_training_by_example(batch_size):
    models = []
    for units in (None, np.arange(40)):
        models.append(network())
        train_model(models[-1], unit_run(units, batch_size, 0.7))
    for plain, by_unit in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(plain, by_unit)


def test_a_client_reports_its_number_of_units():
    client = make_client("shared", model=network(), training=LocalTraining(1, 2))
    vars(client.task).update(private=lambda server_round: mechanism(0.5), units=np.repeat(np.arange(8), 5))
    update = client.fit(client.get_parameters({}), CONFIG)
    assert (update.num_examples, update.metrics["local-steps"]) == (8, 4)


# ---- what a client sends under local differential privacy ---------------------------------------------


def local_mechanism(clip, noise, seed=0):
    return LocalMechanism(clip, noise, Numbers(seed))


def test_an_update_is_clipped_as_a_whole():
    received = {"w": np.array([1.0, 1.0], np.float32), "b": np.array([0.0], np.float32)}
    trained = {"w": np.array([4.0, 1.0], np.float32), "b": np.array([4.0], np.float32)}
    sent = local_mechanism(2.5, 0.0).release(received, trained)  # the update (3, 0, 4) has length 5
    np.testing.assert_allclose(sent["w"], [2.5, 1.0], rtol=1e-5)
    np.testing.assert_allclose(sent["b"], [2.0], rtol=1e-5)
    assert sent["w"].dtype == np.float32
    np.testing.assert_allclose(local_mechanism(9, 0.0).release(received, trained)["b"], [4.0])


@pytest.mark.parametrize("last", [0.0, math.nan, math.inf])
def test_local_noise_has_the_deviation_z_c(last):
    """Also where nothing has moved, and around x where the update is not finite."""
    received = {"w": np.full(40_000, 7.0, np.float32)}
    trained = {"w": received["w"] + np.float32(0.0)}
    trained["w"][-1] += last
    sent = local_mechanism(0.5, 3.0).release(received, trained)["w"]
    assert (sent - 7).std() == pytest.approx(1.5, rel=0.01)
    assert abs((sent - 7).mean()) < 0.03
