"""Features of a divided dataset: by hand."""

import numpy as np
import pytest

from fedbn_flower.data.statistics import Feature, class_counts, features, sampled_images, spread
from fedbn_flower.job.inputs import inputs_of


def test_numbers_of_two_clients():
    """Sixteen bins of width 1/2 from 0 to 8; 0.5 begins the second, 8 ends the last."""
    feature = Feature.of_numbers("x", [np.array([0, 0.5, 1, np.nan]), np.array([8.0])])
    assert feature.edges.tolist() == np.arange(0, 8.5, 0.5).tolist()
    assert feature.counts[0].tolist() == [1, 1, 1] + [0] * 13
    assert feature.counts[1].tolist() == [0] * 15 + [1]
    assert feature.mean.tolist() == [0.5, 8]
    assert feature.std == pytest.approx([np.sqrt(1 / 6), 0])
    assert feature.missing.tolist() == [1, 0]


def test_a_client_without_any_value():
    feature = Feature.of_numbers("x", [np.full(3, np.nan), np.ones(2)])
    assert feature.missing.tolist() == [3, 0]
    assert np.isnan(feature.mean[0])
    assert feature.counts.sum(1).tolist() == [0, 2]


def test_a_sample_is_from_all_over():
    assert spread(np.arange(10, 20), 3).tolist() == [10, 14, 19]
    assert spread(np.arange(2), 3).tolist() == [0, 1]


@pytest.fixture
def table(tmp_path, configured):
    """Two sites; the name of a column of numbers has an equals sign."""
    folder = tmp_path / "table"
    folder.mkdir()
    rows = ["1,f,7,A,no", ",m,7,A,yes", "5,,7,A,no", "2,m,8,B,yes", "4,m,8,B,yes"]
    for split in ("train", "test"):
        (folder / f"{split}.csv").write_text("\n".join(["age,sex,a=b,site,ill", *rows]) + "\n")
    keys = {"partition": "natural:site", "num_clients": 2, "label_column": "ill", "model": "linear"}
    return inputs_of(configured(dataset=str(folder), **keys))


def test_a_table(table):
    clients = [table.client_names.index(name) for name in "AB"]
    age, sex, named = features(table.dataset, table.partitions.train, "none")
    assert (age.name, sex.name, named.name) == ("age", "sex", "a=b")
    assert age.mean[clients].tolist() == [3, 3]  # of 1 and 5, and of 2 and 4
    assert age.std[clients].tolist() == [2, 1]
    assert age.missing[clients].tolist() == [1, 0]
    assert sex.values == ("f", "m")
    assert sex.counts[clients].tolist() == [[1, 1], [0, 2]]
    assert sex.missing[clients].tolist() == [1, 0]
    assert named.mean[clients].tolist() == [7, 8]
    assert class_counts(table.dataset, table.partitions.train)[clients].tolist() == [[2, 1], [0, 2]]


def test_images_as_their_client_sees_them(configured):
    """Inverted, an intensity v is 255 - v."""
    inputs = inputs_of(configured(feature_shift="none+inverted", partition="iid", num_clients=2))
    (intensity,) = features(inputs.dataset, inputs.partitions.train, "none+inverted")
    plain = [inputs.dataset.train.columns["x"][rows] for rows in inputs.partitions.train]
    assert max(map(len, plain)) < sampled_images(inputs.dataset) == 2**18 // 64
    assert intensity.mean == pytest.approx([plain[0].mean(), 255 - plain[1].mean()])
    assert intensity.counts.sum(1).tolist() == [images.size for images in plain]
    assert intensity.edges[[0, -1]].tolist() == [0, 256]
    assert intensity.range == "0 to 255"


def test_targets_that_are_numbers_and_wide_inputs(configured):
    inputs = inputs_of(configured(dataset="quadratic:30", model="linear"))
    x, target = features(inputs.dataset, inputs.partitions.train, "none")
    assert (x.name, target.name) == ("all 30 values", "target")
    columns = inputs.dataset.train.columns
    assert target.mean == pytest.approx([columns["y"][rows].mean() for rows in inputs.partitions.train])
    assert x.std == pytest.approx([columns["x"][rows].std() for rows in inputs.partitions.train], rel=1e-5)


@pytest.mark.parametrize(
    ("values", "said"),
    [([7, 7], "7"), ([-0.25, -0.25], "-0.25"), ([0, 1], "0 to 1"), ([0.2, 0.5], "0.2 to 0.5")],
)
def test_the_range_of_one_value_is_that_value(values, said):
    parts = [np.array(values[:1]), np.array([*values[1:], np.nan])]
    assert Feature.of_numbers("x", parts).range == said
