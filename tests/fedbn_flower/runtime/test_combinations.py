"""Everything that goes together runs, on every runtime alike."""

import pytest

from fedbn_flower.annexes import ANNEXES, Annex

from ..combinations import COVER, EACH, title


@pytest.mark.parametrize(
    "names",
    [pytest.param(names, marks=[] if names in EACH else [pytest.mark.slow]) for names in COVER],
    ids=title,
)
def test_every_allowed_pair_runs(finished, tmp_path, monkeypatch, names):
    """With a second round, in which every rule and client has something to remember, and is evaluated."""
    monkeypatch.setitem(ANNEXES, "study", Annex(""))  # whose intervals take a fifth of such a run
    keys = {**names, "batch_size": 512, "checkpoint_every": 0, "evaluate_every": 2}
    keys |= {"head_epochs": 1} if names["client"] == "fedrep" else {}
    summary = finished(tmp_path / "run", **keys)
    assert summary["failures"] == 0
    assert all(0 < client["accuracy"] <= 1 for client in summary["clients"].values())
