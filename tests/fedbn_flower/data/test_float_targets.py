"""Whole numbers as floats: classes or numbers by one rule, in arrays and files as in tables."""

import numpy as np
import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.data import Request, load_dataset
from fedbn_flower.data.numeric import floats_as_classes
from fedbn_flower.data.readers.arrays import keep_arrays
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.site.inputs import local_task

X = np.random.default_rng(0).normal(size=(120, 2))
FEW, MANY = np.arange(120) % 2 * 1.0, np.arange(120.0)


@pytest.fixture
def read(cache_dir, tmp_path):
    def of_arrays(y, predict):
        arrays = {"x": X, "y": y, "x_test": X, "y_test": y}
        return load_dataset(Request(keep_arrays(cache_dir, arrays, predict=predict)), cache_dir)

    def of_files(y, predict):
        np.save(tmp_path / "train-images.npy", np.zeros((len(y), 4, 4), np.uint8))
        np.save(tmp_path / "train-labels.npy", y)
        return load_dataset(Request(str(tmp_path), predict=predict), cache_dir)

    return {"arrays": of_arrays, "files": of_files}


@pytest.mark.parametrize(
    ("form", "y", "predict", "predicts", "guess"),
    [
        ("arrays", FEW, "auto", "classes", "numbers"),
        ("arrays", FEW[:, None], "auto", "classes", "numbers"),
        ("arrays", FEW.astype(np.float32), "numbers", "numbers", ""),
        ("arrays", FEW, "classes", "classes", ""),
        ("arrays", MANY, "auto", "numbers", "classes"),
        ("arrays", MANY, "classes", "classes", ""),
        ("arrays", FEW / 2, "auto", "numbers", ""),
        ("files", FEW, "auto", "classes", "numbers"),
        ("files", FEW.astype(np.float32), "numbers", "numbers", ""),
        ("files", MANY, "auto", "numbers", "classes"),
    ],
)
def test_one_rule_decides(read, form, y, predict, predicts, guess):
    data = read[form](y, predict)
    assert data.spec.predicts == predicts
    assert data.train.columns["y"].dtype == (np.int64 if predicts == "classes" else np.float32)
    deciding = {"numbers": "problem regression", "classes": "problem classification"}
    assert [note.decided_by for note in data.notes if note.row == "target"] == (
        [deciding[guess]] if guess else []
    )


@pytest.mark.parametrize(("values", "names"), [([-1, 1], ("-1", "1")), ([0, 1000], ("0", "1000"))])
def test_numbers_that_are_no_places_are_numbered(values, names):
    y = np.array(values, np.float32)[:, None]
    (found,), named, notes = floats_as_classes([y], [y], "auto")
    assert (found.tolist(), named) == ([0, 1], names)
    assert "are numbered from 0" in notes[1].text


def test_a_site_keeps_its_numbers():
    y = np.array([[2.0], [200.0]], np.float32)
    assert floats_as_classes([y], [y], "classes", of_site=True)[0][0].tolist() == [2, 200]
    with pytest.raises(UserError, match="data-path: the class -200 is negative"):
        floats_as_classes([-y], [-y], "classes", of_site=True)


def test_a_site_goes_by_the_shape_that_the_run_expects(configured, tmp_path):
    (tmp_path / "own.py").write_text(
        "import numpy as np\ndef read(split):\n    return np.ones((9, 2)), np.arange(9.0) % 3\n"
    )
    for shape, predicts in (("shape:2:3", "classes"), ("shape:2:1:numbers", "numbers")):
        config = configured(dataset=shape, model="linear")
        node = {"data-path": f"{tmp_path / 'own.py'}:read", "cache-dir": str(tmp_path / "cache")}
        task = local_task(config, 0, node)
        assert task.train.columns["y"].dtype == (np.int64 if predicts == "classes" else np.float32)
        assert inputs_of(config, node["data-path"], node["cache-dir"]).dataset.spec.predicts == predicts
