"""The usual model and partition for each kind of data."""

import pytest

from fedbn_flower.config.defaults import defaults_for
from fedbn_flower.config.making import run_config


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


def test_what_is_chosen_is_in_the_configuration(configured):
    config = configured(dataset="quadratic:3")
    assert (config.model, config.partition) == ("linear", "natural:client")
    chosen = configured(dataset="quadratic:3", model="mlp-bn", partition="iid")
    assert (chosen.model, chosen.partition) == ("mlp-bn", "iid")


def test_the_number_of_clients_is_that_of_the_scanners_or_two():
    assert run_config({}).num_clients == 4
    assert run_config({"num-clients": "auto"}) == run_config({})
    assert run_config({"dataset": "digits"}).num_clients == 2
    assert run_config({"num-clients": 3}).num_clients == 3


def test_the_former_default_job_is_that_of_the_digits():
    """Every key of version 0.2.0's default run, by its flag."""
    config = run_config({"dataset": "digits"})
    found = (
        config.strategy,
        config.client,
        config.model,
        config.partition,
        config.num_clients,
        config.rounds,
    )
    assert found == ("fedyogi", "fedbn", "mlp-bn", "silos:0-4,5-9", 2, 10)
