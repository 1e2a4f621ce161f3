"""APFL, pFedMe, Per-FedAvg, FedALA and FedInit: worked by hand, and against formulas written out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from torch import nn

from clients import OBJECTIVES, Examples, LocalTraining
from clients.policies.fedala import is_steady
from clients.policies.per_fedavg import divide
from fedbn_flower.core.errors import UserError
from fedbn_flower.names import CLIENT

from ...quick import diagonal_quick
from ..helpers import CONFIG, make_client, small_model
from .by_hand import PULLED, fit, numbers, two_clients

ONE = LocalTraining(1, 0)


def fitted(client, x=None, **config):
    """What it sends in a round from x, by name."""
    start = client.get_parameters({}) if x is None else x
    update = client.fit(start, CONFIG | config)
    client.memory.commit()
    return dict(zip(client.shared_names, update.arrays, strict=True)), update.metrics


def weight(client, x, **config):
    sent, metrics = fitted(client, [np.float32([[x]])], **config)
    return sent["0.weight"].item(), metrics


# APFL


def test_apfl_two_rounds_by_hand():
    """f = (2 - w_0 w_1)^2 at one client. From x: w' = w - 0.1 grad f(w); at the mix m = a v + (1 - a) w the
    gradient is g, v' = v - 0.1 a g, a' = a - 0.1 g (v - w).

    Not on a mixture of two models' gradients, as in PFLlib and FL-bench, nor with their 0.02 alpha.
    """
    client = two_clients("apfl", 2, LocalTraining(2, 0), apfl_alpha=0.5)[0]
    v, a = None, 0.5

    def gradient(w):
        return 2 * (w.prod() - 2) * w[::-1]

    for x in (np.array([0.5, 1.2]), np.array([1.5, 0.9])):
        w, v = x, x if v is None else v
        for _ in range(2):
            g = gradient(a * v + (1 - a) * w)
            w, v, a = w - 0.1 * gradient(w), v - 0.1 * a * g, np.clip(a - 0.1 * g @ (v - w), 0, 1)
        sent, metrics = fitted(client, [np.float32([[one]]) for one in x])
        kept = client.memory.read("apfl")
        for i, name in enumerate(("0.weight", "1.weight")):
            assert sent[name].item() == pytest.approx(w[i], rel=1e-6)
            assert kept[f".{name}"].item() == pytest.approx(v[i], rel=1e-6)
        assert kept[".alpha"].item() == metrics["apfl-alpha"] == pytest.approx(a, rel=1e-6)
    assert 0 < a < 1
    assert a != 0.5
    loss = client.evaluate([np.float32([[0.7]]), np.float32([[1.1]])], PULLED)[0]
    mix = a * v + (1 - a) * np.array([0.7, 1.1])
    assert loss == pytest.approx((mix.prod() - 2) ** 2, rel=1e-4)


def test_apfls_share_stays_within_0_and_1_and_may_be_fixed():
    client = two_clients("apfl", 1, LocalTraining(40, 0), apfl_alpha=0.5, apfl_adapt=False)[0]
    assert weight(client, 0.5)[1]["apfl-alpha"] == 0.5
    for x, rate in ((-30.0, 0.1), (30.0, 0.1)):
        client = two_clients("apfl", 1, LocalTraining(3, 0), apfl_alpha=0.9)[0]
        for start in (1.0, x, -x):
            assert 0 <= weight(client, start, **{"client-lr": rate})[1]["apfl-alpha"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "objective"),
    diagonal_quick(
        ["apfl", "ditto", "fedbn+apfl", "silobn+apfl", "silobn+ditto"], ["plain", "feddyn", "fedsam", "moon"]
    ),
)
def test_with_an_own_model_all_else_is_as_without_it(name, objective):
    """What is sent, the loss of training, and what else stays at home."""
    first, _, own = name.rpartition("+")
    records = RecordDict(), RecordDict()
    for server_round in (1, 2):
        pair = [
            make_client(cls, record, objective=objective)
            for cls, record in zip((name, first or "shared"), records, strict=True)
        ]
        start = [a + a.dtype.type(0.01) if a.dtype.kind == "f" else a for a in pair[1].get_parameters({})]
        found = [fitted(client, list(start), **{"server-round": server_round}) for client in pair]
        assert found[0][1]["train-loss"] == found[1][1]["train-loss"]
        kept = [[client.memory.read(group) or {} for group in ("local", objective)] for client in pair]
        for entries, expected in zip((found[0][0], *kept[0]), (found[1][0], *kept[1]), strict=True):
            assert entries.keys() == expected.keys()
            for entry, array in expected.items():
                np.testing.assert_array_equal(entries[entry], array)
    personal = pair[0].memory.read({"ditto": "personal"}.get(own, own))
    assert {n.lstrip(".") for n in personal} - {"alpha"} == pair[0].task.initial.keys()


def test_apfls_mix_has_batch_norm_statistics_of_its_own():
    client = make_client("apfl", RecordDict())
    sent, _ = fitted(client)
    kept = client.memory.read("apfl")
    assert not np.allclose(kept["2.running_mean"], 0)
    assert kept["2.num_batches_tracked"] == sent["2.num_batches_tracked"] == 5
    client.evaluate([sent[name] + 1 for name in client.shared_names], PULLED)
    assert np.array_equal(client.task.model[2].running_mean.numpy(), kept["2.running_mean"])


def test_a_tied_weight_is_mixed_under_both_of_its_names():
    layer = nn.Linear(4, 4)
    client = make_client(
        "apfl", RecordDict(), model=nn.Sequential(nn.Flatten(), layer, nn.Linear(4, 4), layer)
    )
    sent, _ = fitted(client)
    client.evaluate([sent[name] for name in client.shared_names], PULLED)
    kept, entries = client.memory.read("apfl"), client.task.model.state_dict()
    a = kept[".alpha"]
    for name in ("1.weight", "3.weight"):
        np.testing.assert_allclose(entries[name], a * kept[f".{name}"] + (1 - a) * sent[name], rtol=1e-6)


# pFedMe


def test_pfedme_two_rounds_by_hand():
    """f = (2 - t)^2: thrice t -= 0.05 (2 (t - 2) + 4 (t - w)), then w -= 0.1 * 4 (w - t), twice a round."""
    settings = {"weight": 4.0, "steps": 3, "rate": 0.05}
    client = two_clients("pfedme", 1, LocalTraining(2, 0), **settings)[0]
    for x in (0.5, 1.5):
        w = t = x
        for _ in range(2):
            for _ in range(3):
                t -= 0.05 * (2 * (t - 2) + 4 * (t - w))
            w -= 0.4 * (w - t)
        sent, metrics = weight(client, x)
        assert sent == pytest.approx(w, rel=1e-6)
        assert client.memory.read("pfedme")["0.weight"].item() == pytest.approx(t, rel=1e-6)
        assert metrics["local-steps"] == 2


def test_pfedme_evaluates_t_and_not_w():
    """In PFLlib the personal parameters are the model's own, which w overwrites before the evaluation."""
    client = two_clients("pfedme", 1, ONE)[0]
    sent, metrics = weight(client, 0.5, **{"eval-splits": "test"})
    t = client.memory.read("pfedme")["0.weight"].item()
    assert t != pytest.approx(sent)
    assert metrics["loss"] == pytest.approx((2 - t) ** 2, rel=1e-5)
    assert client.evaluate([np.float32([[9.0]])], PULLED)[0] == pytest.approx((2 - t) ** 2, rel=1e-5)


# Per-FedAvg


@pytest.mark.parametrize("form", ["fo", "hf"])
def test_per_fedavg_by_hand_on_different_batches(form):
    """f = mean (w x - y)^2 on a batch, so its Hessian is 2 mean x^2 and its differences are exact.

    The order of the examples is that of the run's seed.
    """
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=12), rng.normal(size=12)
    client = numbers("per-fedavg", x, y, LocalTraining(1, 2), inner_rate=0.2, form=form, delta=0.1)
    order_rng = np.random.default_rng([0, 0, 1])
    order_rng.integers(2**63)
    order, parts = order_rng.permutation(12), 2 if form == "fo" else 3

    def gradient(w, batch):
        return 2 * np.mean((w * x[batch] - y[batch]) * x[batch])

    w = 0.7
    for group in order.reshape(-1, 2 * parts):
        inner, outer, *hessian = np.split(group, parts)
        v = gradient(w - 0.2 * gradient(w, inner), outer)
        w -= 0.1 * (v - (0.2 * 2 * np.mean(x[hessian[0]] ** 2) * v if hessian else 0))
    sent, metrics = weight(client, 0.7)
    assert sent == pytest.approx(w, rel=1e-4)
    assert metrics["local-steps"] == 12 // (2 * parts)


def test_per_fedavg_is_evaluated_after_one_step_and_forgets_it():
    client = numbers("per-fedavg", [1.0], [2.0], ONE, inner_rate=0.25)
    start = [np.float32([[0.5]])]
    tuned = 0.5 - 0.25 * 2 * (0.5 - 2)
    for _ in range(2):
        assert client.evaluate(start, PULLED)[0] == pytest.approx((2 - tuned) ** 2, rel=1e-5)
    new = client.evaluate(start, PULLED | {"own-statistics": True})
    assert new[0] == pytest.approx((2 - tuned) ** 2, rel=1e-5)
    assert client.memory._store.groups() == {}


def test_per_fedavgs_statistics_follow_the_pass_at_w_alone():
    for form in ("fo", "hf"):
        client = make_client("per-fedavg", RecordDict())
        client.form = form
        sent, metrics = fitted(client)
        assert sent["2.num_batches_tracked"] == metrics["local-steps"] == (3 if form == "fo" else 2)


def test_a_batch_is_divided_evenly_or_serves_for_all():
    assert [part.tolist() for part in divide(np.arange(5), 2)] == [[0, 1, 2], [3, 4]]
    assert [part.tolist() for part in divide(np.arange(5), 3)] == [[0, 1, 2, 3, 4]] * 3


# FedALA


def top_of(sent):
    return {name: sent[name] for name in ("4.weight", "4.bias")}


@pytest.mark.parametrize("cls", [CLIENT.find(name) for name in ("fedala", "fedbn+fedala")])
def test_fedalas_second_and_third_round_against_numpy(cls):
    """Lower layers come as sent; W is learnt in evaluation mode, until losses are steady, then an epoch."""
    record = RecordDict()
    training, rng = LocalTraining(1, 8), np.random.default_rng(5)
    client = make_client(cls, record, training=training)
    plain = make_client("fedbn" if client.local_names else "shared", RecordDict(), training=training)
    start = client.get_parameters({})
    first, expected = fitted(client, start)[0], fitted(plain, start)[0]
    for name, entry in first.items():
        np.testing.assert_array_equal(entry, expected[name])
    assert client.memory.read("fedala").keys() == {"4.weight", "4.bias"}
    own, weights = top_of(first), None
    for server_round in (2, 3):
        x = {n: a + rng.normal(scale=0.2, size=a.shape).astype(a.dtype) for n, a in first.items()}
        x = {n: np.abs(a) if n.endswith("var") else a for n, a in x.items()}
        mixed, weights = written_mix(client, x, own, weights, server_round)
        seen = []

        class Seeing(cls):
            def _mix(self, run, top, seen=seen):
                found = super()._mix(run, top)
                seen.append({n: e.numpy().copy() for n, e in self.task.model.state_dict().items()})
                return found

        seeing = make_client(Seeing, record, training=training)
        sent, _ = fitted(seeing, [x[n] for n in seeing.shared_names], **{"server-round": server_round})
        for name, entry in seen[0].items():
            wanted = mixed[name] if name in mixed else x.get(name, entry)
            np.testing.assert_allclose(entry, wanted, atol=1e-5)
        kept = seeing.memory.read("fedala")
        for name, expected in weights.items():
            np.testing.assert_allclose(kept[f".{name}"], expected, atol=1e-4)
            assert (kept[f".{name}"] != 1).any()
        own = top_of(sent)
        for name, entry in own.items():
            np.testing.assert_array_equal(kept[name], entry)


def written_mix(client, x, own, weights, server_round):
    """Equations 4 and 5 in float64, with the gradient of softmax regression on what is below it."""
    entries = {n: np.array(a, np.float64) for n, a in client.task.initial.items()}
    entries |= {n: np.array(a, np.float64) for n, a in (client.memory.read("local") or {}).items()}
    entries |= {n: np.array(a, np.float64) for n, a in x.items()}
    data = client.task.train
    inputs, labels = data.columns["x"].reshape(40, 4).astype(np.float64), data.columns["y"]
    h = inputs @ entries["1.weight"].T + entries["1.bias"]
    h = (h - entries["2.running_mean"]) / np.sqrt(entries["2.running_var"] + 1e-5)
    z = np.maximum(h * entries["2.weight"] + entries["2.bias"], 0)
    chosen = np.random.default_rng([0, 0, server_round, 7]).permutation(40)[:32]
    first = weights is None
    w = {n: np.ones_like(a, dtype=np.float64) for n, a in own.items()} if first else dict(weights)
    losses = []
    while True:
        epoch = []
        for batch in np.split(chosen, 4):
            top = {n: own[n] + (x[n] - own[n]) * w[n] for n in own}
            logits = z[batch] @ top["4.weight"].T + top["4.bias"]
            p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            epoch.append(-np.log(p[np.arange(8), labels[batch]]).mean())
            error = (p - np.eye(3)[labels[batch]]) / 8
            gradient = {"4.weight": error.T @ z[batch], "4.bias": error.sum(0)}
            w = {n: np.clip(w[n] - 1.0 * gradient[n] * (x[n] - own[n]), 0, 1) for n in w}
        losses.append(np.mean(epoch))
        if not first or (len(losses) > 10 and np.std(losses[-10:]) < 0.1) or len(losses) == 100:
            break
    return {n: own[n] + (x[n] - own[n]) * w[n] for n in own}, w


def test_fedala_evaluates_what_comes_mixed_with_what_it_has():
    client = make_client("fedala", RecordDict())
    sent, _ = fitted(client)
    x = {n: a + a.dtype.type(0.5) if n.startswith("4") else a for n, a in sent.items()}
    fitted(client, [x[n] for n in client.shared_names], **{"server-round": 2})
    kept = client.memory.read("fedala")
    client.evaluate([x[n] for n in client.shared_names], PULLED)
    for name, entry in client.task.model.state_dict().items():
        own = kept.get(name)
        expected = x[name] if own is None else own + (x[name] - own) * kept[f".{name}"]
        np.testing.assert_allclose(entry, expected, rtol=1e-6)


def test_losses_are_steady_after_ten():
    assert not is_steady([1.0] * 10)
    assert is_steady([1.0] * 11)
    assert not is_steady([1.0] * 10 + [2.0])


def test_how_many_layers_are_mixed():
    client = make_client("fedala", RecordDict())
    for layers, names in ((1, {"4"}), (2, {"2", "4"}), (9, {"1", "2", "4"})):
        client.layers = layers
        fitted(client)
        assert {name.partition(".")[0] for name in client.memory.read("fedala")} == names


@pytest.mark.parametrize("name", ["apfl", "pfedme", "fedala", "fedrod"])
def test_a_personal_part_that_diverges_is_not_kept(name, monkeypatch):
    client = make_client(name, RecordDict(), model=small_model())
    remember = type(client).remember

    def diverged(self, kept):
        remember(
            self, {n: torch.full_like(e, torch.nan) if e.is_floating_point() else e for n, e in kept.items()}
        )

    monkeypatch.setattr(type(client), "remember", diverged)
    with pytest.raises(FloatingPointError, match="training diverged"):
        client.fit(client.get_parameters({}), CONFIG)
    assert client.memory._store.groups() == {}


# ---- FedInit ------------------------------------------------------------------------------------------


def test_three_rounds_by_hand():
    """w + 0.2 (2 - w) and w - 0.4 (2 w - 1), a step a round, from x + 0.5 (x - what was trained last)."""
    clients = two_clients("fedinit", 1, ONE, relaxation=0.5)
    assert fit(clients, 1.0) == pytest.approx([1.2, 0.6])  # both from 1; the mean is 0.9
    assert fit(clients, 0.9) == pytest.approx([1.0, 0.61])  # 0.9 - 0.15 = 0.75 ->; 0.9 + 0.15 = 1.05 ->
    # of the mean, 0.805: 0.805 - 0.0975 = 0.7075 ->; 0.805 + 0.0975 = 0.9025 ->
    assert fit(clients, 0.805) == pytest.approx([0.966, 0.5805])
    losses = [client.evaluate([np.float32([[0.805]])], PULLED)[0] for client in clients]
    assert losses == pytest.approx([1.428025, 0.3721], rel=1e-5)  # (2 - 0.805)^2, (1 - 1.61)^2: of x


def test_fedprox_pulls_to_the_received_model_not_to_where_the_round_begins():
    client = two_clients("fedinit", 1, ONE, relaxation=0.5)[0]
    client.task = replace(client.task, objective=OBJECTIVES["fedprox"])
    assert fit([client], 1.0, mu=1.0) == pytest.approx([1.2])
    # at 0.75 the slope is 2 (0.75 - 2) + (0.75 - 0.9) = -2.65
    assert fit([client], 0.9, mu=1.0) == pytest.approx([1.015])


@pytest.mark.parametrize("name", ["fedinit", "fedbn+fedinit", "fedinit+fedper"])
def test_only_shared_parameters_are_moved(name, monkeypatch):
    client = make_client(name, RecordDict(), training=LocalTraining(1, 8))
    sent = client.fit(client.get_parameters({}), CONFIG).arrays.by_name()
    client.memory.commit()
    last = {n: a for n, a in sent.items() if n.endswith(("weight", "bias"))}
    own = {n: client.task.model.state_dict()[n].numpy().copy() for n in client.local_names}
    x = {n: a + a.dtype.type(1) for n, a in sent.items()}
    began = {}

    def no_training(model, run):
        began.update({n: entry.numpy().copy() for n, entry in model.state_dict().items()})
        return {"local-steps": 1}

    monkeypatch.setattr("clients.base.train_model", no_training)
    client.fit(list(x.values()), CONFIG)
    assert len(last) == (6 if name == "fedinit" else 4)
    for n, entry in began.items():
        expected = own[n] if n in own else 1.1 * x[n] - 0.1 * last[n] if n in last else x[n]
        np.testing.assert_allclose(entry, expected, rtol=1e-5, atol=1e-6)


def test_it_does_not_go_with_fedala_which_begins_elsewhere():
    with pytest.raises(UserError, match="both decide about where a round begins"):
        CLIENT.find("fedinit+fedala")


def test_every_batch_of_per_fedavg_is_one_to_train_on(monkeypatch):
    """As augmentation goes: those that the first step is made with, too."""
    asked, load = [], Examples.load
    monkeypatch.setattr(
        Examples, "load", lambda self, *b, training=False: asked.append(training) or load(self, *b, training)
    )
    client = make_client("per-fedavg")
    client.fit(client.get_parameters({}), CONFIG)
    assert len(asked) > 1
    assert all(asked)
