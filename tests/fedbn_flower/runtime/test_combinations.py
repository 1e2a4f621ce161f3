"""What goes together runs."""

import pytest

from fedbn_flower.annexes import ANNEXES, Annex

from ..combinations import COVER, EACH, title

FURTHER = [names for names in COVER if names not in EACH]
EVERY = 16
"""Of so many combinations, which run hardly a line more than those of each name, every change tries one."""


@pytest.mark.parametrize(
    "names",
    [
        *EACH,
        *(
            pytest.param(names, marks=pytest.mark.exhaustive if i % EVERY else pytest.mark.slow)
            for i, names in enumerate(FURTHER)
        ),
    ],
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
