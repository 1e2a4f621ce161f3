"""FedInit: three rounds by hand, what is moved and what is kept, and what it goes with."""

from dataclasses import replace

import numpy as np
import pytest
from flwr.app import RecordDict

from clients import OBJECTIVES, LocalTraining
from fedbn_flower.core.errors import UserError
from fedbn_flower.names import CLIENT

from ..helpers import CONFIG, make_client
from .by_hand import PULLED, fit, two_clients

ONE = LocalTraining(1, 0)


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
