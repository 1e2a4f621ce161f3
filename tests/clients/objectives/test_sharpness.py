"""FedSAM, FedSpeed and FedSMOO: uphill first, and the step from where one was."""

import numpy as np
import pytest
import torch
from torch import nn

from clients import OBJECTIVES, FedAvgClient, Local, LocalTraining, Loss, Received

from ..helpers import CONFIG, make_examples, small_model
from ..helpers import make_client as small_client
from ..written import (
    CASES,
    LOCAL,
    RATE,
    SHAPES,
    At,
    at_point,
    entries_like,
    exact,
    flat,
    make_client,
    moved,
    usual,
)


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


def test_fedsam_by_hand():
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


RHO, A, LAMBDA, BETA = 0.2, 0.7, 4.0, 5.0


def shared(w, policy):
    """1 where a trained entry is shared, in the order of a point."""
    kinds = [torch.full((w[n].numel(),), n not in LOCAL[policy]) for n in SHAPES if n in w]
    return torch.cat(kinds).double()


def stepped(client, x, server_round, direction, gradient):
    """Two epochs of batches of 8 by plain SGD; BatchNorm moves in the first pass."""
    rng = np.random.default_rng([0, 5, server_round])
    rng.integers(2**63)
    w = dict(x)
    for batch in (part for _ in range(2) for part in np.split(rng.permutation(40), 5)):
        inputs, targets = client.task.train.prepared(batch)

        def f(point, w=w, inputs=inputs, targets=targets):
            return usual(At(inputs, targets, at_point(w, point), x, None))

        point = flat(w)
        first = exact(f, point)
        d = direction(first)
        e = RHO * d / d.norm()
        second = exact(f, point + e)
        w = at_point(w, point - RATE * gradient(point, first, second, e)) | moved(w, inputs)
    return w


def rounds(objective, policy, batch_norm, settings, step, kept):
    """Compare what is sent and remembered in three rounds with what `step` and `kept` say."""
    client = make_client(policy, batch_norm, objective, training=LocalTraining(2, 8))
    initial = {n: e.clone() for n, e in client.task.model.state_dict().items()}
    own = {n: initial[n] for n in LOCAL[policy] if n in initial}
    for server_round in (1, 2, 3):
        x = entries_like(initial, 5 + server_round) | own
        told = CONFIG | {"server-round": server_round, "client-lr": RATE, **settings}
        s = 0.05 * torch.arange(len(flat(x))).double().cos() * shared(x, policy)
        record = {n: e.numpy() for n, e in at_point(x, s).items() if n in SHAPES and n not in LOCAL[policy]}
        given = Received({n: x[n].numpy() for n in client.shared_names}, {"perturbation": record})
        update = client.fit(given, told)
        client.memory.commit()
        w, wanted = step(client, x, server_round, s)
        own = {n: w[n] for n in own}
        found = {**update.arrays.by_name(), **(client.memory.read("local") or {})}
        for name, entry in wanted.items():
            torch.testing.assert_close(torch.from_numpy(found[name]), entry, atol=1e-9, rtol=0)
        kept(client, update, x)


@pytest.mark.parametrize("case", CASES)
def test_fedspeed_three_rounds(case):
    """g_i = 0 at first; what it sends is x_i - lambda g_i, of shared parameters."""
    g = {}

    def step(client, x, server_round, _):
        mask, start = shared(x, case[0]), flat(x)
        g.setdefault("g", torch.zeros_like(start))

        def gradient(point, first, second, e):
            return (1 - A) * first + A * second + mask * (-g["g"] + (point - start) / LAMBDA)

        w = stepped(client, x, server_round, lambda first: first, gradient)
        g["g"] = g["g"] - mask * (flat(w) - start) / LAMBDA
        return w, at_point(w, flat(w) - LAMBDA * g["g"])

    def kept(client, update, x):
        memory = client.memory.read("fedspeed")
        expected = at_point(x, g["g"])
        assert memory.keys() == {n for n in SHAPES if n in x and n not in LOCAL[case[0]]}
        for name, entry in memory.items():
            torch.testing.assert_close(torch.from_numpy(entry), expected[name], atol=1e-9, rtol=0)

    rounds("fedspeed", *case, {"rho": RHO, "speed-alpha": A, "speed-lambda": LAMBDA}, step, kept)


@pytest.mark.parametrize("case", CASES)
def test_fedsmoo_three_rounds(case):
    """lambda_i = mu_i = 0 at first; mu_i changes in every step."""
    dual = {}

    def step(client, x, server_round, s):
        mask, start = shared(x, case[0]), flat(x)
        for name in ("lambda", "mu"):
            dual.setdefault(name, torch.zeros_like(start))

        def gradient(point, first, second, e):
            dual["mu"] = dual["mu"] + mask * (e - s)
            dual["e"] = mask * e
            return second + mask * (-dual["lambda"] + (point - start) / BETA)

        w = stepped(client, x, server_round, lambda first: first - mask * (dual["mu"] + s), gradient)
        dual["lambda"] = dual["lambda"] - mask * (flat(w) - start) / BETA
        return w, w

    def kept(client, update, x):
        memory, sent = client.memory.read("fedsmoo"), update.records["perturbation"]
        names = {n for n in SHAPES if n in x and n not in LOCAL[case[0]]}
        assert memory.keys() == {f"{kind}.{n}" for kind in ("lambda", "mu") for n in names}
        expected = {kind: at_point(x, dual[kind]) for kind in ("lambda", "mu")}
        part = at_point(x, dual["mu"] - dual["e"])
        for name in names:
            for kind, values in expected.items():
                found = torch.from_numpy(memory[f"{kind}.{name}"])
                torch.testing.assert_close(found, values[name], atol=1e-8, rtol=0)
            torch.testing.assert_close(torch.from_numpy(sent[name]), part[name], atol=1e-8, rtol=0)

    rounds("fedsmoo", *case, {"rho": RHO, "smoo-beta": BETA}, step, kept)


def test_what_is_evaluated_after_training_is_x_i_and_not_what_is_sent():
    client = small_client(FedAvgClient, objective="fedspeed")
    update = client.fit(client.get_parameters({}), CONFIG | {"eval-splits": "test"})
    sent = update.arrays.by_name()
    assert not np.allclose(client.task.model.state_dict()["4.weight"].numpy(), sent["4.weight"])
    x, y = client.task.evaluation["test"].prepared(np.arange(30))
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(client.task.model.eval()(x), y).item()
    assert update.metrics["loss"] == pytest.approx(loss, rel=1e-5)
