"""On what a client's model is evaluated where each client standardises its own rows."""

import json

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from fedbn_flower.core.errors import UserError
from fedbn_flower.job.checks.notices import notices
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.server.federation import Federation


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


@pytest.fixture
def four_sites(tmp_path):
    """Four sites, of which 'ost' has no test rows."""
    rng = np.random.default_rng(0)
    for split, count in {"train": 40, "test": 20}.items():
        (tmp_path / "sites" / split).mkdir(parents=True)
        for site in ("nord", "ost", "sued", "west"):
            rows = pd.DataFrame({"x": rng.normal(size=count)})
            if (split, site) != ("test", "ost"):
                path = tmp_path / "sites" / split / f"{site}.csv"
                rows.assign(label=(rows.x > 0).astype(int)).to_csv(path, index=False)
    return {"dataset": str(tmp_path / "sites")}


OST = "clients that train and are not evaluated, without held-out examples: ost"


@pytest.mark.parametrize(
    ("eval_data", "more"),
    [
        ("local", {}),
        ("auto", {"best": "cross-fitted"}),
        ("auto", {"val_fraction": 0.25, "predictions": "on"}),
    ],
)
def test_a_site_without_test_rows_trains_and_enters_no_mean(run, four_sites, eval_data, more):
    keys = {**four_sites, **more, "partition": "natural:file", "num_clients": 4, "model": "auto", "rounds": 1}
    result = run(**keys, eval_data=eval_data)
    found = result.summary["clients"]
    assert json.loads((result.folder / "config.json").read_text())["eval-data"] == "local"
    assert sorted(found) == ["0", "2", "3"]
    losses = [one["loss"] for one in found.values()]
    assert result.summary["client-mean"]["loss"] == pytest.approx(np.mean(losses), rel=1e-12)
    if not more:  # it trains as where all are evaluated on all test rows
        other = run(**keys, eval_data="global")
        one, same = (load_file(folder / "model.safetensors") for folder in (result.folder, other.folder))
        assert all(np.array_equal(one[name], same[name]) for name in one)


def test_a_site_without_test_rows_is_named_before_the_first_round(configured, four_sites):
    config = configured(**four_sites, partition="natural:file", num_clients=4)
    assert OST in str(Federation(config).learnt)


def test_where_each_evaluates_what_it_has_just_trained_all_are_evaluated_on_all(configured, four_sites):
    config = configured(**four_sites, partition="natural:file", num_clients=4, eval_model="local")
    assert not inputs_of(config).evaluates_locally
    with pytest.raises(
        UserError, match="^eval-data: 'local' is not allowed; expected 'global', since 1 clients"
    ):
        Federation(config.model_copy(update={"eval_data": "local"}))


def test_what_global_means_is_said(configured, sites):
    found = notices(inputs_of(configured(**keys_for(sites), eval_data="global")))
    (output,) = (line for line in found if line.startswith("eval-data"))
    assert output.startswith("eval-data: 'global': each client's model is evaluated on all clients' examples")
