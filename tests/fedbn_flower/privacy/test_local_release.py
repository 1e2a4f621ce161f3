"""What leaves a client under local privacy: its own ledger comes first, and nothing leaves without noise."""

import json
import os
from collections import Counter

import numpy as np
import pytest
import torch

from clients import FedAvgClient, NamedArrays, Update
from fedbn_flower.core.errors import RunFailed
from fedbn_flower.privacy import accounts
from fedbn_flower.privacy.local_privacy import released
from tests.clients.helpers import make_client
from tests.fedbn_flower.results.test_supernodes import SuperNodes

from .asked import Site
from .runs import charges, of_local, run_on, simulated

# ---- a client's own ledger ------------------------------------------------------------------------


def own(state):
    """The ledgers of a node's state-dir, by client."""
    return {path.stem: path.read_text().splitlines() for path in (state / "privacy").glob("*.jsonl")}


def test_a_client_keeps_its_own_ledger_in_its_state_dir(configured, tmp_path):
    config = of_local(configured, dp_seed=-1, fraction_train=0.5, rounds=4)
    summary = run_on(SuperNodes(config, tmp_path / "state"), config, tmp_path)
    found, asked = own(tmp_path / "state"), Counter()
    for charge in charges(tmp_path):
        asked.update(f"client-{i}" for i in charge["clients"])
    assert {client: len(lines) for client, lines in found.items()} == asked
    spent = {client: json.loads(lines[-1])["epsilon"] for client, lines in found.items()}
    by_hand = {client: accounts.local_epsilon(2.0, count, 1e-3) for client, count in asked.items()}
    assert spent == pytest.approx(by_hand, rel=1e-12)
    assert summary["privacy"]["epsilon"] == pytest.approx(max(spent.values()), rel=1e-12)


def test_nothing_leaves_before_the_clients_ledger_is_on_the_disk(configured, tmp_path, monkeypatch):
    fsync = os.fsync

    def failing(handle):
        if os.readlink(f"/proc/self/fd/{handle}").endswith("client-0.jsonl"):
            raise OSError(5, "no disk")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", failing)
    site = Site(of_local(configured), state_dir=str(tmp_path))
    assert "state-dir: cannot write to" in (line := site.refusal("train"))
    assert "no disk" in line


# ---- which clients and rules -----------------------------------------------------------------------


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        self.last.weight = self.first.weight
        self.register_buffer("count", torch.zeros(2))


def test_a_tied_tensor_has_one_noise_and_what_is_not_trained_stays(configured):
    client = make_client(FedAvgClient, model=Tied())
    received = client.get_parameters({})
    moved = NamedArrays({name: array + 1 for name, array in received.by_name().items()})
    config = of_local(configured, dp_noise=1e-9)
    found = released(config, client, received, Update(moved, 3, {"loss": 1.0}), 1)
    assert (found.num_examples, found.metrics) == (3, {"loss": 1.0})
    after, before = found.arrays.by_name(), received.by_name()
    np.testing.assert_array_equal(after["first.weight"], after["last.weight"])
    np.testing.assert_array_equal(after["count"], before["count"])
    step = 1 / np.sqrt(9 + 3 + 3)  # of length 1 over 15 numbers, the tied tensor once
    for name in ("first.weight", "first.bias", "last.bias"):
        np.testing.assert_allclose(after[name] - before[name], step, rtol=1e-5)


class SendsRecords(FedAvgClient):
    def fit(self, parameters, config):
        update = super().fit(parameters, config)
        update.records = {"control": {"w": np.zeros(1)}}
        return update


def test_a_record_that_is_not_protected_does_not_leave(configured, tmp_path):
    with pytest.raises(RunFailed, match="dp 'local' does not protect the record 'control'"):
        simulated(of_local(configured, client=f"{__name__}:SendsRecords"), tmp_path)
