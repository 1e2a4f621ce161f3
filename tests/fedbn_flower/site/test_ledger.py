"""The ledger: on the disk before anything leaves, and never short of what has left."""

import json
import os

import pytest

from fedbn_flower.core.errors import RunFailed, UserError
from fedbn_flower.privacy import ledger
from fedbn_flower.privacy.ledger import Charge, Ledger

TERMS = {"noise": 1.5, "sampling": "poisson"}


def charge(number, attempt=1, digest="a"):
    return Charge(number, attempt, 1.0, 1.1, 0.5 * number, digest)


@pytest.fixture
def path(tmp_path):
    return tmp_path / ledger.NAME


def test_a_line_for_the_terms_and_one_for_each_charge(path):
    first = Ledger(path, TERMS)
    for number in (1, 2):
        first.charge(charge(number))
    terms, *charges = map(json.loads, path.read_text().splitlines())
    assert terms == TERMS
    assert [(line["round"], line["epsilon"], line["next_clip"]) for line in charges] == [
        (1, 0.5, 1.1), (2, 1.0, 1.1),
    ]  # fmt: skip
    again = Ledger(path, {"noise": 9})
    assert again.terms == TERMS
    assert again.charges == first.charges
    assert again.epsilon == 1.0


def test_the_same_vector_again_costs_nothing(path):
    found = Ledger(path, TERMS)
    for _ in range(2):
        found.charge(charge(1))
    found.charge(charge(1, attempt=2, digest="b"))
    assert [one.attempt for one in found.charges] == [1, 2]
    assert len(path.read_text().splitlines()) == 3
    assert found.last_of(1).attempt == 2
    assert found.last_of(2) is None


def test_another_vector_under_the_same_noise_ends_the_run(path):
    found = Ledger(path, TERMS)
    found.charge(charge(4))
    with pytest.raises(RunFailed, match="round 4 differs from what it has published before"):
        found.charge(charge(4, digest="b"))


def test_a_charge_is_synced_before_the_call_returns(path, monkeypatch):
    found = Ledger(path, TERMS)
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(path.read_text().count("\n")))
    found.charge(charge(1))
    assert synced == [2]


@pytest.mark.parametrize("cut", [1, 20, 59])
def test_a_line_that_a_kill_cut_off_is_dropped(path, cut):
    found = Ledger(path, TERMS)
    found.charge(charge(1))
    whole = path.read_bytes()
    found.charge(charge(2))
    path.write_bytes(path.read_bytes()[:-cut])
    again = Ledger(path, TERMS)
    assert [one.round for one in again.charges] == [1]
    assert path.read_bytes() == whole
    again.charge(charge(2))
    assert [one.round for one in Ledger(path, TERMS).charges] == [1, 2]


@pytest.mark.parametrize("text", ["", "{}\nnonsense\n{}\n", '{}\n{"round": 1}\n'])
def test_a_ledger_that_cannot_be_read_is_refused(path, text):
    path.write_text(text)
    with pytest.raises(UserError, match=r"resume: the ledger .*privacy\.jsonl.* cannot be read"):
        Ledger(path, TERMS)
