"""Everything that goes together runs, on every runtime alike."""

import pytest

from fedbn_flower.annexes import ANNEXES, Annex
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation

from ..combinations import COVER, EACH, title


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
