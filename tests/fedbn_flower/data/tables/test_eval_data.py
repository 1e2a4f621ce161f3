"""On what a client's model is evaluated where each client standardises its own rows."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from fedbn_flower import simulate
from fedbn_flower.federation.checks.notices import notices
from fedbn_flower.federation.federation import Federation
from fedbn_flower.federation.inputs import inputs_of
from fedbn_flower.federation.tasks import local_task
from fedbn_flower.results.manifest import build_manifest


@pytest.fixture
def sites(tmp_path):
    """Two hospitals with one law, y = 3 x: one records x in grams, the other in milligrams."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    site = np.repeat(["grams", "milligrams"], 200)
    table = pd.DataFrame({"site": site, "x": np.where(site == "grams", x, 1000 * x), "y": 3 * x})
    table.to_csv(tmp_path / "sites.csv", index=False)
    return tmp_path / "sites.csv"


def keys_for(sites):
    return {
        "dataset": str(sites), "label_column": "y", "columns": "x", "partition": "natural:site",
        "num_clients": 2, "client": "shared", "strategy": "fedavg", "model": "linear",
    }  # fmt: skip


def notices_of(config):
    """What is said of evaluation; that a fifth is held out is said of every table without a test set."""
    federation = Federation(config)
    found = notices(federation.inputs)
    return [line for line in found if line.startswith("eval-data")]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("eval_data", "small"), [("auto", True), ("local", True), ("global", False)])
def test_other_sites_units_do_not_count_unless_requested(cache_dir, tmp_path, sites, eval_data, small):
    """Each site fits its own rows; on the other's, a thousand times off, the loss is about 9e6 x var(x)."""
    result = simulate(
        **keys_for(sites), eval_data=eval_data, rounds=10, client_lr=0.1, backend="inline",
        cache_dir=cache_dir, progress=False, run_dir=tmp_path / "run",
    )  # fmt: skip
    losses = [client["loss"] for client in result.summary["clients"].values()]
    assert max(losses) < 0.1 if small else min(losses) > 1
    stored = json.loads((result.folder / "config.json").read_text())
    assert stored["eval-data"] == ("local" if small else "global")


def test_a_client_evaluates_on_its_own_rows_by_default(configured, sites):
    config = configured(**keys_for(sites))
    assert notices_of(config) == []
    assert [len(local_task(config, i, {}).evaluation["test"]) for i in (0, 1)] == [40, 40]


def test_all_rows_are_evaluated_on_where_somebody_has_none_of_its_own(configured, sites):
    """Eighty test rows are too few for a hundred clients."""
    config = configured(**keys_for(sites) | {"partition": "iid", "num_clients": 100})
    assert not inputs_of(config).evaluates_locally
    (output,) = notices_of(config)
    assert re.match(
        r"eval-data: 'global', since \d+ of 100 clients \(the first is \d+\) have no held-out examples: each",
        output,
    )
    assert build_manifest(Federation(config))["eval-data"] == "global"


def test_what_global_means_is_said(configured, sites):
    (output,) = notices_of(configured(**keys_for(sites), eval_data="global"))
    assert output.startswith("eval-data: 'global': each client's model is evaluated on all clients' examples")
