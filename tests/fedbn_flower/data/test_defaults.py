"""The usual model and partition for each kind of data."""

import numpy as np
import pytest
from PIL import Image

from fedbn_flower.config.making import run_config
from fedbn_flower.config.run_config import defaults_for
from fedbn_flower.core.errors import UserError
from fedbn_flower.job.checks.notices import notices
from fedbn_flower.job.checks.unused_keys import SIMULATION, given_keys
from fedbn_flower.job.inputs import inputs_of


@pytest.mark.parametrize(
    ("dataset", "model", "partition"),
    [
        ("scanners", "mlp-bn", "natural:site"),
        ("digits", "mlp-bn", "silos:0-4,5-9"),
        ("owner/images", "mlp-bn", "silos"),
        ("patients.csv", "mlp-bn", "iid"),
        ("{}", "mlp-bn", "iid"),
        ("text:play.txt", "char-lstm", "natural:speaker"),
        ("synthetic:1,1", "linear", "natural:client"),
        ("quadratic:3", "linear", "natural:client"),
        ("shape:1x28x28:10", "mlp-bn", "iid"),
        ("shape:80:97:characters", "char-lstm", "iid"),
        ("arrays:0123", "mlp-bn", "iid"),
    ],
)
def test_each_kind_has_its_own(tmp_path, dataset, model, partition):
    (tmp_path / "train.csv").write_text("a,label\n1,0\n")
    assert defaults_for(dataset.format(tmp_path)) == {"model": model, "partition": partition}


@pytest.mark.parametrize(
    ("keys", "partition"),
    [
        ({}, "silos"),
        ({"label_column": "age"}, "silos"),
        ({"label_column": "kind=a,b|c"}, "silos"),
        ({"problem": "classification"}, "silos"),
        ({"label_column": "Edema,Mass"}, "iid"),
        ({"label_column": "Edema,Mass", "problem": "multi-label"}, "iid"),
        ({"label_column": "age", "problem": "regression"}, "iid"),
        ({"label_column": "age", "problem": "regression", "partition": "silos"}, "silos"),
    ],
)
def test_images_without_classes_are_not_divided_by_class(configured, keys, partition):
    config = configured(**({"dataset": "owner/images", "partition": "auto"} | keys))
    assert config.partition == partition
    assert config.to_user_config()["partition"] == partition


def test_the_number_of_clients_is_that_of_the_scanners_or_two():
    assert run_config({}).num_clients == 4
    assert run_config({"num-clients": "auto"}) == run_config({})
    assert run_config({"dataset": "digits"}).num_clients == 2
    assert run_config({"num-clients": 3}).num_clients == 3


def test_the_former_default_job_is_that_of_the_digits():
    """Every key of version 0.2.0's default run, by its flag."""
    config = run_config({"dataset": "digits"})
    found = [
        getattr(config, key) for key in ("strategy", "client", "model", "partition", "num_clients", "rounds")
    ]
    assert found == ["fedyogi", "fedbn", "mlp-bn", "silos:0-4,5-9", 2, 10]


@pytest.fixture
def five_sites(tmp_path):
    """Five sites with twelve rows each, and the same as a table each, and as pictures of two classes."""
    sites = ("Nord", "Ost", "Mitte", "West", "Sued")
    rows = [f"{site},{i % 7},{i % 2}" for site in sites for i in range(12)]
    (tmp_path / "sites.csv").write_text("\n".join(["site,a,label", *rows]))
    for site in sites:
        for i in range(12):
            path = tmp_path / "pictures" / site / "uv"[i % 2] / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((8, 8), 10 * i, np.uint8)).save(path)
        table = tmp_path / "tables" / f"{site}.csv"
        table.parent.mkdir(exist_ok=True)
        table.write_text("\n".join(["a,label", *(f"{i % 7},{i % 2}" for i in range(12))]))
    return tmp_path


OF_SITES = (
    {"dataset": "sites.csv", "partition": "natural:site"},
    {"dataset": "pictures"},
    {"dataset": "tables"},
)


@pytest.mark.parametrize("keys", OF_SITES)
def test_all_sites_of_the_data_take_part_and_those_that_are_left_out_are_named(configured, five_sites, keys):
    keys = keys | {"dataset": str(five_sites / keys["dataset"])}
    config = configured(**keys)
    assert config.num_clients == 5
    assert config.partitioning.kind == "natural"
    inputs = inputs_of(config)
    assert set(inputs.client_names) == {"Nord", "Ost", "Mitte", "West", "Sued"}
    assert not [line for line in notices(inputs) if line.startswith("num-clients")]
    assert "num-clients" not in given_keys(config, SIMULATION)
    two = inputs_of(configured(**keys, num_clients=2))
    (line,) = (line for line in notices(two) if line.startswith("num-clients"))
    lacking = sorted({*inputs.client_names} - {*two.client_names})
    assert len(lacking) == 3
    assert line.startswith(f"num-clients: 2 of 5 sites take part; left out: {', '.join(lacking)} (")


def test_each_site_of_the_data_is_left_out_in_turn(five_sites, monkeypatch):
    Experiment = pytest.importorskip("fedbn_flower.sweeps.experiment").Experiment
    monkeypatch.chdir(five_sites)
    given = {"leave-one-site-out": True, "dataset": "sites.csv", "partition": "natural:site"}
    configs = Experiment.of({**given, "cache-dir": "cache"}).configurations()
    assert [config.left_out for config in configs] == [0, 1, 2, 3, 4]
    with pytest.raises(UserError, match="one value with leave-one-site-out and several of partition"):
        Experiment.of({**given, "partition": ["natural:site", "iid"]}).configurations()
