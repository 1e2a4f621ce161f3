"""The usual model and partition for each kind of data."""

import pytest

from fedbn_flower.config.defaults import defaults_for


@pytest.mark.parametrize(
    ("dataset", "model", "partition"),
    [
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
