"""FedSpeed and FedSMOO: three rounds against the algorithms written out in float64."""

import numpy as np
import pytest
import torch

from clients import FedAvgClient, LocalTraining, Received

from ..helpers import CONFIG
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


def test_fedspeed_without_its_terms_is_fedsam():
    """Bit for bit, in a first round with a weightless proximal term; and it sends what it has then."""
    sent = []
    for objective, more in (("fedsam", {}), ("fedspeed", {"speed-lambda": 1e30})):
        client = small_client(FedAvgClient, training=LocalTraining(2, 8), objective=objective)
        client.fit(client.get_parameters({}), CONFIG | {"rho": 0.1} | more)
        sent.append({n: e.numpy().copy() for n, e in client.task.model.state_dict().items()})
    for name, entry in sent[0].items():
        np.testing.assert_array_equal(entry, sent[1][name])


def test_what_is_evaluated_after_training_is_x_i_and_not_what_is_sent():
    client = small_client(FedAvgClient, objective="fedspeed")
    update = client.fit(client.get_parameters({}), CONFIG | {"eval-splits": "test"})
    sent = update.arrays.by_name()
    assert not np.allclose(client.task.model.state_dict()["4.weight"].numpy(), sent["4.weight"])
    x, y = client.task.evaluation["test"].prepared(np.arange(30))
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(client.task.model.eval()(x), y).item()
    assert update.metrics["loss"] == pytest.approx(loss, rel=1e-5)


def test_a_lost_answer_of_fedspeed_is_made_up_for():
    """x_i - lambda g_i has all that was held back, also in rounds whose answer did not arrive; FedDyn's h
    never learns of these."""
    client = small_client(FedAvgClient, objective="fedspeed")
    start = client.get_parameters({})
    drift = 0
    for server_round in (1, 2):
        update = client.fit(list(start), CONFIG | {"server-round": server_round})
        client.memory.commit()
        own = client.task.model.state_dict()["4.weight"].numpy()
        drift = drift + own - start[client.shared_names.index("4.weight")]
        np.testing.assert_allclose(update.arrays.by_name()["4.weight"], own + drift, atol=1e-5)
