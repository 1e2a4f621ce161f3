"""FedSAM against Qu et al. 2022: uphill first, and the step from where one was."""

import numpy as np
import pytest
import torch
from torch import nn

from clients import OBJECTIVES, FedAvgClient, FedBNClient, Local, LocalTraining, Loss

from ..helpers import CONFIG, make_examples, small_model
from ..helpers import make_client as small_client
from ..written import CASES, TRAINING, check_gradient, check_rounds, make_client, usual

RHO = 0.2


def uphill(gradient, point):
    g = gradient(point)
    return point + RHO * g / g.norm()


@pytest.mark.parametrize("case", CASES)
def test_its_gradient_is_that_of_the_formula(case):
    check_gradient(make_client(*case, "fedsam"), usual, uphill, {"rho": RHO})


@pytest.mark.parametrize("case", CASES)
def test_three_rounds_are_those_of_the_formula(case):
    """Statistics, momentum, clipping and decay included: the step is made from w, by what is found uphill."""
    client = make_client(*case, "fedsam", training=TRAINING)
    check_rounds(client, usual, uphill, {"rho": RHO})


class Squares(Loss):
    """||w||^2 / 2 of the output itself."""

    def __call__(self, output, targets, reduction="mean"):
        return (output**2).sum() / 2


class Constant(nn.Module):
    def __init__(self, *values):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(values))

    def forward(self, x):
        return self.w


def sam_of(model, loss=None, rho=0.5):
    examples = make_examples()
    return OBJECTIVES["fedsam"](
        dict(model.named_parameters()), {"rho": rho}, local=Local(model, examples, loss or Loss())
    )


def test_by_hand():
    """||w||^2 / 2 at (3, 4): the gradient (3, 4) has norm 5; at w + 0.5 (0.6, 0.8) it is (3.3, 4.4).

    The loss is then 30.25 / 2; the other way it would be 20.25 / 2, and the gradient (2.7, 3.6).
    """
    model = Constant(3.0, 4.0)
    objective = sam_of(model, Squares())
    loss, output = objective.loss(model, torch.zeros(2), torch.zeros(2))
    loss.backward()
    assert loss.item() == pytest.approx(30.25 / 2)
    assert output.tolist() == pytest.approx([3.3, 4.4])
    objective.correct_gradients()
    assert model.w.tolist() == [3.0, 4.0]
    assert model.w.grad.tolist() == pytest.approx([3.3, 4.4])


def test_without_a_gradient_there_is_no_way_up():
    model = Constant(0.0, 0.0)
    objective = sam_of(model, Squares())
    objective.loss(model, torch.zeros(2), torch.zeros(2))[0].backward()
    objective.correct_gradients()
    assert model.w.tolist() == model.w.grad.tolist() == [0.0, 0.0]


def test_w_is_as_it_was_bit_for_bit():
    """Of weights of all sizes, adding and subtracting the perturbation would leave others."""
    model = small_model()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(torch.logspace(-8, 2, p.numel()).view_as(p))
    before = {n: e.clone() for n, e in model.named_parameters()}
    perturbed = sam_of(model)
    inputs, targets = make_examples().prepared(np.arange(8))
    loss, _ = perturbed.loss(model, inputs, targets)
    assert any(not torch.equal(p, before[n]) for n, p in model.named_parameters())
    loss.backward()
    perturbed.correct_gradients()
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters())


def shared_batch_norm():
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(5)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 5), norm, nn.Tanh(), norm, nn.Linear(5, 3))


@pytest.mark.parametrize(("make", "passes"), [(small_model, 1), (shared_batch_norm, 2)])
def test_batch_norm_statistics_move_once_a_step(make, passes):
    """Five steps in a round: as often as under plain SGD, where a layer is used twice, too."""
    counted = []
    for objective in ("plain", "fedsam"):
        client = small_client(FedAvgClient, model=make(), objective=objective)
        sent = client.fit(client.get_parameters({}), CONFIG)[0]
        counted.append(sent.by_name()["2.num_batches_tracked"])
    assert counted == [5 * passes] * 2


def test_batch_norm_statistics_are_those_of_the_pass_at_w():
    """As of one pass of the batch, which no perturbation moves."""
    model = small_model()
    inputs, targets = make_examples().prepared(np.arange(8))
    expected = small_model().train()
    expected(inputs)
    perturbed = sam_of(model.train())
    perturbed.loss(model, inputs, targets)[0].backward()
    perturbed.correct_gradients()
    for name, buffer in expected.named_buffers():
        assert torch.equal(model.get_buffer(name), buffer)


def test_the_norm_is_over_all_that_is_trained_local_or_shared():
    """In its first round a client trains alike whether its BatchNorm stays at home or not."""
    entries = []
    for cls in (FedAvgClient, FedBNClient):
        client = small_client(cls, objective="fedsam")
        sent = client.fit(client.get_parameters({}), CONFIG | {"rho": 0.5})[0]
        kept = client.memory.read("local") or {}
        entries.append(sent.by_name() | kept)
    assert entries[0].keys() == entries[1].keys()
    for name, entry in entries[0].items():
        np.testing.assert_array_equal(entry, entries[1][name])


@pytest.mark.parametrize(
    "training", [LocalTraining(2, 8, momentum=0.9, weight_decay=0.1), LocalTraining(2, 8, "adam")]
)
def test_with_rho_zero_it_is_sgd(training):
    sent = []
    for objective in ("plain", "fedsam"):
        client = small_client(FedBNClient, training=training, objective=objective)
        sent.append(client.fit(client.get_parameters({}), CONFIG | {"rho": 0.0, "client-lr": 0.01})[0])
    for a, b in zip(*sent, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
