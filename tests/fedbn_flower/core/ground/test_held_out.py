"""The ways in which data are held out: each is a key, and stands where its line of the docs says."""

import json

import pandas as pd
import pytest

from fedbn_flower import simulate
from fedbn_flower.config.keys import RUN_KEYS
from fedbn_flower.core.ground.columns import HeldOut

ASKS = [
    ({HeldOut.TEST, HeldOut.VALIDATION, HeldOut.CLIENTS}, {"val_fraction": 0.2, "holdout_clients": 1}),
    ({HeldOut.FOLDS}, {"folds": 3, "fold": 2}),
    ({HeldOut.HALVES}, {"best": "cross-fitted"}),
    ({HeldOut.SITE}, {"leave_one_site_out": True, "left_out": 1}),
]


def columns(folder, file):
    """The names of columns with a value, or of keys."""
    if file.endswith(".json"):
        return {*json.loads((folder / file).read_text())}
    found = pd.read_csv(folder / file) if file.endswith(".csv") else pd.read_parquet(folder / file)
    return {*found.dropna(axis="columns", how="all").columns}


def test_each_is_asked_for_by_a_key():
    assert {held_out.key for held_out in HeldOut} | {h.one for h in HeldOut if h.one} <= {*RUN_KEYS}
    assert set().union(*(ways for ways, _ in ASKS)) == {*HeldOut} - {
        HeldOut.LATER
    }  # which is of tables, and the test set of a run


@pytest.mark.usefixtures("pictures_never_drawn")
@pytest.mark.parametrize(("ways", "asked"), ASKS)
def test_what_was_found_stands_where_the_docs_say(ways, asked, cache_dir, tmp_path):
    small = {"rounds": 1, "strategy": "fedavg", "client": "shared", "partition": "iid", "num_clients": 3}
    keys = small | {"model": "linear", "local_epochs": 1, "batch_size": 128} | asked
    simulate(**keys, backend="inline", cache_dir=str(cache_dir), run_dir=tmp_path / "run", progress=False)
    for held_out in ways:
        assert held_out.column in columns(tmp_path / "run", held_out.file)
        if held_out is HeldOut.CLIENTS:
            assert pd.read_parquet(tmp_path / "run" / held_out.file)[held_out.column].any()
