"""FedPer, FedRep, Ditto and fine-tuning: rounds worked by hand, and what neither moves nor leaves."""

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from torch import nn

from clients import CLIENTS, ContextStore, Examples, LocalTraining
from clients.training import FineTuning

from ..helpers import CONFIG, make_client, small_model
from .by_hand import PULLED, fit, two_clients


def test_two_rounds_of_ditto_by_hand():
    """w - 0.1 * 2 (w - 2) and w - 0.1 * 4 (2 w - 1), twice a round; v with 0.1 * 0.5 (v - x) more."""
    clients = two_clients("ditto", 1, LocalTraining(2, 0), ditto_lambda=0.5)

    def personal():
        return [client.memory.read("personal")["0.weight"].item() for client in clients]

    assert fit(clients, 1.0) == pytest.approx([1.36, 0.52])  # 1 -> 1.2 -> 1.36; 1 -> 0.6 -> 0.52
    assert personal() == pytest.approx([1.35, 0.54])  # 1 -> 1.2 -> 1.2 + 0.16 - 0.01; 0.6 - 0.08 + 0.02
    x = 0.94  # the mean
    assert fit(clients, x) == pytest.approx([1.3216, 0.5176])  # 1.152 ->; 0.588 ->
    # 1.35 + 0.13 - 0.0205 = 1.4595, + 0.1081 - 0.025975; 0.54 - 0.032 + 0.02 = 0.528, - 0.0224 + 0.0206
    assert personal() == pytest.approx([1.541625, 0.5262])
    losses = [client.evaluate([np.float32([[x]])], PULLED)[0] for client in clients]
    assert losses == pytest.approx([(2 - 1.541625) ** 2, (1 - 2 * 0.5262) ** 2], rel=1e-4)


def test_two_rounds_of_fedrep_by_hand():
    """f = (h a x - y)^2, a the body: h -= 0.1 * 2 a x (h a x - y) twice, then a with h as it is now."""
    clients = two_clients("fedrep", 2, LocalTraining(1, 0), head_epochs=2)

    def heads():
        return [client.memory.read("local")["1.weight"].item() for client in clients]

    assert [client.shared_names for client in clients] == [["0.weight"]] * 2
    assert fit(clients, 1.0) == pytest.approx([1.17408, 0.99168])
    assert heads() == pytest.approx([1.36, 0.52])  # 1 -> 1.2 -> 1.36; 1 -> 0.6 -> 0.52
    a, h = 1.08288, 1.36  # the mean, and client 0's own
    for _ in range(2):
        h -= 0.2 * a * (h * a - 2)
    assert fit(clients, a)[0] == pytest.approx(a - 0.2 * h * (h * a - 2), rel=1e-5)
    assert heads()[0] == pytest.approx(h, rel=1e-5)
    assert clients[0].evaluate([np.float32([[a]])], PULLED)[0] == pytest.approx((h * a - 2) ** 2, rel=1e-3)


def test_two_rounds_of_lg_fedavg_by_hand():
    """f = (h a x - y)^2, a the body at home, h the head: each -= 0.1 * 2 x (h a x - y) times the other."""
    clients = two_clients("lg-fedavg", 2, LocalTraining(1, 0))

    def bodies():
        return [client.memory.read("local")["0.weight"].item() for client in clients]

    assert [client.shared_names for client in clients] == [["1.weight"]] * 2
    assert fit(clients, 1.0) == pytest.approx([1.2, 0.6])
    assert bodies() == pytest.approx([1.2, 0.6])
    h = 0.9  # the mean
    assert fit(clients, h) == pytest.approx([h + 0.2 * 0.92 * 1.2, h - 0.4 * 0.08 * 0.6])
    expected = [1.2 + 0.2 * 0.92 * h, 0.6 - 0.4 * 0.08 * h]
    assert bodies() == pytest.approx(expected)
    losses = [client.evaluate([np.float32([[h]])], PULLED)[0] for client in clients]
    a, b = expected
    assert losses == pytest.approx([(2 - a * h) ** 2, (1 - 2 * b * h) ** 2], rel=1e-4)


def test_two_rounds_of_fedbabu_by_hand():
    """f = (h a x - y)^2: a -= 0.2 h x (h a x - y) with h = 1 in all rounds; fine-tuning steps both."""
    clients = two_clients("fedbabu", 2, LocalTraining(1, 0))
    assert [client.shared_names for client in clients] == [["0.weight", "1.weight"]] * 2
    one, client = np.ones((1, 1), np.float32), clients[0]
    for a, expected in ((1.0, [1.2, 0.6]), (0.9, [0.9 + 0.2 * 1.1, 0.9 - 0.4 * 0.8])):
        sent = [client.fit([np.float32([[a]]), one], CONFIG).arrays for client in clients]
        assert [arrays[0].item() for arrays in sent] == pytest.approx(expected)
        assert all(np.array_equal(arrays[1], one) for arrays in sent)
    loss = client.evaluate([np.float32([[a]]), one], PULLED | {"fine-tune": 1})[0]
    tuned, head = a + 0.2 * 1.1, 1 + 0.2 * 1.1 * a
    assert loss == pytest.approx((2 - tuned * head) ** 2, rel=1e-4)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("objective", ["plain", "fedprox", "feddyn", "moon", "fedsam", "fedntd"])
def test_in_fedbabus_training_nothing_of_the_head_moves(objective):
    """Nor by weight decay, nor its BatchNorm; it trains again afterwards."""
    model = Watched()
    training = LocalTraining(2, 8, "sgd", 0.9, 0.1)
    client = make_client("fedbabu", model=model, training=training, objective=objective)
    for server_round in (1, 2):
        update = client.fit(client.get_parameters({}), CONFIG | {"server-round": server_round})
        client.memory.commit()
        for name, array in update.arrays.by_name().items():
            same = np.array_equal(array, client.task.initial[name])
            assert same == name.startswith("top."), name
    assert all(p.requires_grad for p in model.parameters())
    trained = [seen for seen in model.seen if seen[1] == [True] * 4 + [False] * 4]
    assert trained
    assert all(top == {False} for (_, top), _, _ in trained)


def test_fedbabus_fine_tuning_is_of_the_whole_model_in_training_mode():
    """Its BatchNorm in the head too."""
    model = Watched()
    client = make_client("fedbabu", model=model)
    client.evaluate(client.get_parameters({}), PULLED | {"fine-tune": 3})
    modes = [modes for modes, _, _ in model.seen]
    assert modes[:3] == [[{True}, {True}]] * 3


class Watched(nn.Module):
    """Notes of both halves whether they are in training mode; both have a BatchNorm and a dropout."""

    head = "top"

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout())
        self.top = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3), nn.Dropout())
        self.seen = []

    def forward(self, x):
        body = {name: entry.clone() for name, entry in self.body.state_dict().items()}
        modes = [{m.training for m in half.modules()} for half in (self.body, self.top)]
        self.seen.append((modes, [p.requires_grad for p in self.parameters()], body))
        return self.top(self.body(x))


def test_fedrep_trains_one_half_while_nothing_of_the_other_moves():
    model = Watched()
    client = make_client("fedrep", model=model, training=LocalTraining(2, 8))
    client.fit(client.get_parameters({}), CONFIG)
    head, body = model.seen[:50], model.seen[50:]  # 5 batches an epoch: 10 of the head, 2 of the body
    assert len(body) == 10
    assert all(modes == [{False}, {True}] for modes, _, _ in head)
    assert all(modes == [{True}, {False}] for modes, _, _ in body)
    assert all(trained == [False] * 4 + [True] * 4 for _, trained, _ in head)
    assert all(trained == [True] * 4 + [False] * 4 for _, trained, _ in body)
    for name, entry in body[0][2].items():
        np.testing.assert_array_equal(entry.numpy(), client.task.initial[f"body.{name}"])
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    local = client.memory.read("local")
    assert int(local["top.1.num_batches_tracked"]) == 50
    assert int(model.body[2].num_batches_tracked) == 10


def test_dittos_batch_norm_statistics_are_the_personal_models():
    """It evaluates by them whatever comes; before it ever trained it estimates those at home (AdaBN)."""
    record = RecordDict()
    client = make_client("silobn+ditto", record)
    start = client.get_parameters({})
    new = make_client("silobn").evaluate(start, PULLED)
    assert client.evaluate(start, PULLED) == new
    update = client.fit(start, PULLED)
    client.memory.commit()
    assert update.metrics["loss"] == client.evaluate(start, PULLED)[0]
    personal, local = (client.memory.read(group) for group in ("personal", "local"))
    assert personal.keys() == client.task.initial.keys()
    assert not np.array_equal(personal["2.running_mean"], local["2.running_mean"])
    again = make_client("silobn+ditto", record, model=small_model(5))
    again.evaluate([a + 1 for a in start], PULLED)
    for name, entry in again.task.model.state_dict().items():
        np.testing.assert_array_equal(entry.numpy(), personal[name])


def test_a_personal_model_that_diverges_is_reported_and_not_kept():
    client = make_client("ditto", RecordDict())
    client.ditto_lambda = 1e30
    with pytest.raises(FloatingPointError, match="training diverged"):
        client.fit(client.get_parameters({}), CONFIG)
    assert client.memory._store.groups() == {}


def test_fine_tuning_by_hand():
    """Two steps of w - 0.05 * 2 (w - 2) from 1: 1.1, 1.19; the rate is 0.1 * 0.5 in round 2."""
    client, _ = two_clients("shared", 1, LocalTraining(1, 0))
    config = PULLED | {"fine-tune": 2, "server-round": 2, "client-lr": 0.05}
    assert client.evaluate([np.float32([[1.0]])], config)[0] == pytest.approx(0.81**2)
    update = client.fit([np.float32([[1.0]])], config)
    assert update.arrays[0].item() == pytest.approx(1.1)
    assert update.metrics["loss"] == pytest.approx(0.729**2)  # from 1.1: 1.19, 1.271


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CLIENTS)
def test_fine_tuning_is_forgotten(name):
    def trained(**config):
        record = RecordDict()
        client = make_client(name, record, training=LocalTraining(1, 8))
        update = client.fit(client.get_parameters({}), PULLED | config)
        client.memory.commit()
        return client, update, record

    client, plain, record = trained()
    _, tuned, other = trained(**{"fine-tune": 3})
    for a, b in zip(plain.arrays, tuned.arrays, strict=True):
        np.testing.assert_array_equal(a, b)
    groups = [ContextStore(r).groups() for r in (record, other)]
    assert str(groups[0]) == str(groups[1])
    assert plain.metrics["loss"] != tuned.metrics["loss"]
    assert plain.metrics["train-loss"] == tuned.metrics["train-loss"]

    figures = [client.evaluate(plain.arrays, PULLED | config)
               for config in ({}, {"fine-tune": 3}, {"fine-tune": 3}, {})]  # fmt: skip
    assert figures[0] == figures[3] != figures[1] == figures[2]
    client.memory.commit()
    assert str(ContextStore(record).groups()) == str(groups[0])
    moved = client.evaluate(plain.arrays, PULLED | {"fine-tune": 3, "server-round": 2})
    assert moved != figures[1]


def test_a_tied_head_keeps_the_embedding_at_home():
    layer = nn.Linear(4, 4)
    model = nn.Sequential(nn.Flatten(), layer, nn.Linear(4, 4), layer)
    client = make_client("fedper", model=model)
    assert client.local_names == ["1.weight", "1.bias", "3.weight", "3.bias"]
    client = make_client("fedper")
    assert client.local_names == ["4.weight", "4.bias"]


@pytest.mark.parametrize("frozen", ["head", "body"])
def test_fedrep_trains_what_can_be_trained(frozen):
    """A pretrained body that stays is the usual case."""
    model = small_model()
    for p in (model[4] if frozen == "head" else model[1]).parameters():
        p.requires_grad_(False)
    if frozen == "body":
        for p in model[2].parameters():
            p.requires_grad_(False)
    client = make_client("fedrep", model=model)
    client.fit(client.get_parameters({}), CONFIG)
    moved = [
        not np.array_equal(p.detach().numpy(), client.task.initial[n]) for n, p in model.named_parameters()
    ]
    assert moved == [frozen == "head"] * 4 + [frozen == "body"] * 2


@pytest.mark.parametrize(("name", "epochs"), [("shared", 1), ("fedrep", 11), ("ditto", 2)])
def test_every_training_of_a_round_shuffles_by_itself(monkeypatch, name, epochs):
    """Fine-tuning too, by steps: 7 batches are an epoch of 5 and 2 of the next."""
    orders, batches = [], Examples.batches

    def noted(self, size, rng=None):
        found = list(batches(self, size, rng))
        if rng is not None:
            orders.append(tuple(np.concatenate(found)))
        return iter(found)

    monkeypatch.setattr(Examples, "batches", noted)
    client = make_client(name)
    client.fit(client.get_parameters({}), PULLED | {"fine-tune": 7})
    assert len(orders) == len(set(orders)) == epochs + 2


@pytest.mark.parametrize("steps", [1, 2, 11])
def test_fine_tuning_has_its_steps_whatever_an_epoch_has(steps):
    client = make_client("shared", training=LocalTraining(1, 8))
    count = len(client.task.train)
    epoch = -(-count // 8)
    run = client.begin_run(dict(client.task.model.named_parameters()), CONFIG, {})
    batches = [batch for epoch in FineTuning.like(run, steps).epochs(run.generator()) for batch in epoch]
    assert len(batches) == steps
    assert 2 < epoch < 11
    seen = np.concatenate(batches[:epoch])
    assert len(set(seen)) == len(seen)
    assert steps < epoch or sorted(seen) == list(range(count))
