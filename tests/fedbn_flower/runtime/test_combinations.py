"""Everything that goes together runs, on every runtime alike."""

import pytest

from clients import LOSSES
from fedbn_flower.annexes import ANNEXES, Annex
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation

from ..combinations import ALLOWED, COVER, EACH, KINDS, title

CELLS = sorted({names[:2] for names in ALLOWED})


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize(("strategy", "client"), CELLS)
def test_every_allowed_combination_runs(configured, tmp_path, strategy, client):
    """With every objective, the losses in turn; `COVER` has every two names together."""
    allowed = [names for names in ALLOWED if names[:2] == (strategy, client)]
    for i, names in enumerate(allowed):
        if i % len(LOSSES) == CELLS.index((strategy, client)) % len(LOSSES):
            chosen = dict(zip(KINDS, names, strict=True)) | {"rounds": 2, "checkpoint_every": 0}
            if client == "fedrep":
                chosen["head_epochs"] = 1
            summary = simulate(
                Federation(configured(**chosen)), tmp_path / title(dict(enumerate(names))), None
            ).as_json()
            assert summary["failures"] == 0, names
            assert all(0 < c["accuracy"] <= 1 for c in summary["clients"].values()), names


@pytest.mark.parametrize(
    "names",
    [pytest.param(names, marks=[] if names in EACH else [pytest.mark.slow]) for names in COVER],
    ids=title,
)
def test_every_allowed_pair_runs(configured, tmp_path, monkeypatch, names):
    """With a second round, in which every rule and client has something to remember."""
    monkeypatch.setitem(ANNEXES, "study", Annex(""))  # whose intervals take a fifth of such a run
    keys = {**names, "batch_size": 512, "checkpoint_every": 0}
    keys |= {"head_epochs": 1} if names["client"] == "fedrep" else {}
    summary = simulate(Federation(configured(**keys)), tmp_path / "run", None).as_json()
    assert summary["failures"] == 0
    assert all(0 < client["accuracy"] <= 1 for client in summary["clients"].values())
