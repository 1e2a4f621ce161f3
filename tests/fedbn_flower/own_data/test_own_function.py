"""Data that a function in a file returns."""

import json

import numpy as np
import pytest
import torch

from fedbn_flower import UserError, simulate
from fedbn_flower.config.making import run_config
from fedbn_flower.config.named_algorithms import with_full_paths
from fedbn_flower.config.trust import check_code
from fedbn_flower.core.notes import Note
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.results.resume import resumed

CODE = """
import numpy as np
import torch
from pathlib import Path
from torch.utils.data import TensorDataset
from fedbn_flower.core.input_spec import InputSpec
from fedbn_flower.data import Images, Numeric

X, Y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
PIXELS = (np.arange(20 * 64) % 256).astype(np.uint8).reshape(20, 8, 8)

def arrays(split):
    return (X, Y) if split == "train" else (X[:4] + 1, Y[:4])

def images(split):
    return (PIXELS, Y * 0.5) if split == "train" else None

def sites(split):
    first = TensorDataset(torch.tensor(X[:10]), torch.tensor(Y[:10]))
    return {"Lyon": first, "Turin": (X[10:16], Y[10:16])} if split == "train" else (X[16:], Y[16:])

def raises(split):
    raise KeyError("no such hospital")

def nothing(split):
    return split

def unequal(split):
    return X, Y[:3]

def counted(split):
    log = Path(__file__).with_suffix(".log")
    log.write_text(log.read_text() + split + " " if log.exists() else split + " ")
    return arrays(split)

NUMBER = 3

class Doubled(Numeric):
    read = staticmethod(lambda split: arrays(split))
    def spec(self):
        return InputSpec((4,), 2)
    def prepare(self, rows, normalize):
        return lambda columns: (torch.cat([columns["x"]] * 2, 1), columns["y"])

class Misshapen(Doubled):
    spec = Numeric.spec

class Unlike(Images):
    read = Doubled.read

class Failing(Doubled):
    def prepare(self, rows, normalize):
        raise KeyError("no such unit")

class Blind(Numeric):
    pass
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(CODE)
    return path


@pytest.fixture
def dataset_of(file, cache_dir):
    def found(name, **keys):
        config = run_config({"dataset": f"{file}:{name}", "cache-dir": str(cache_dir), **keys})
        return inputs_of(config).dataset

    return found


def test_arrays_by_split(dataset_of):
    found = dataset_of("arrays")
    assert found.train.columns["x"].tolist() == np.arange(40).reshape(20, 2).tolist()
    assert found.test.columns["x"].tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert (str(found.spec), found.spec.predicts) == ("2 in 2 classes", "classes")


def test_images_with_numbers_and_without_a_test_set(dataset_of):
    found = dataset_of("images")
    assert (found.spec.shape, found.spec.predicts, found.spec.outputs) == ((1, 8, 8), "numbers", 1)
    assert (len(found.train), len(found.test)) == (16, 4)


def test_a_dataset_and_arrays_of_clients_by_name(dataset_of):
    keys = {"partition": "natural:client", "num-clients": 2}
    found = dataset_of("sites", **keys)
    assert found.train.groups.tolist() == ["Lyon"] * 10 + ["Turin"] * 6
    assert found.train.columns["x"][10].tolist() == [20, 21]
    assert found.test.columns["y"].tolist() == [0, 1, 0, 1]


def test_clients_of_a_function_that_are_not_kept_apart_are_said(dataset_of):
    """With partition auto, which is iid for a function, and with any but natural:client."""
    note = Note(
        "clients", "the function's own clients are not kept apart: partition natural:client does that"
    )
    assert [note in dataset_of("sites", partition=name).notes for name in ("auto", "iid")] == [True, True]
    assert note not in dataset_of("sites", **{"partition": "natural:client", "num-clients": 2}).notes
    assert note not in dataset_of("arrays").notes


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raises", r"dataset: .*mine.py:raises' raised KeyError: 'no such hospital' \(.*mine.py, line 23\)"),
        ("nothing", "nothing' returned what is not allowed: .*expected a Dataset .*, or a pair of arrays"),
        ("unequal", r"arrays of shape \(20, 2\) and \(3,\); expected a pair of inputs and targets"),
        ("array", "dataset: unknown name 'array' .did you mean 'arrays'"),
        ("NUMBER", "NUMBER' is not allowed; expected a function of 'train' or 'test'"),
        ("Misshapen", r"prepares 2 targets for inputs of \(2, 4\); expected 2 examples of 2 in 2 classes"),
        ("Unlike", "Unlike' is not allowed; expected a subclass of Numeric, the kind of what it reads"),
        ("Failing", "Failing' raised KeyError: 'no such unit'"),
        ("Blind", "expected a function of 'train' or 'test', or a subclass of Kind with read"),
    ],
)
def test_a_mistake_is_one_line(dataset_of, name, message):
    with pytest.raises(UserError, match=message) as raised:
        dataset_of(name)
    assert "\n" not in str(raised.value)


def test_it_is_called_once_a_run_and_again_on_resume(file, cache_dir, tmp_path):
    """A resumed run reads again, and refuses other data."""
    given = {"cache_dir": cache_dir, "backend": "inline", "progress": False, "run_dir": tmp_path / "run"}
    result = simulate(dataset=f"{file}:counted", rounds=1, **given)
    assert file.with_suffix(".log").read_text() == "train test "
    assert json.loads((result.folder / "config.json").read_text())["dataset"] == f"{file}:counted"
    again = {"backend": "inline", "progress": False, "resume": str(tmp_path / "run")}
    named = {"resume": again["resume"], "dataset": f"{file}:counted", "rounds": 2}
    assert resumed(named).dataset == f"{file}:counted"
    assert simulate(rounds=2, **again).summary["rounds"] == 2
    assert file.with_suffix(".log").read_text() == "train test train test "
    file.write_text(CODE.replace("np.arange(40.0)", "np.arange(1.0, 41.0)"))
    with pytest.raises(UserError, match="no longer holds the data that the run was started with"):
        simulate(rounds=3, **again)


def test_a_site_may_have_a_function_of_its_own(file, cache_dir):
    config = run_config({"dataset": "shape:2:3", "cache-dir": str(cache_dir)})
    found = inputs_of(config, f"{file}:arrays", str(cache_dir)).dataset
    assert (len(found.train), found.spec.outputs) == (20, 3)


def test_code_that_a_file_names_is_not_run_unasked(file, monkeypatch):
    named = [("dataset", f"{file}:arrays")]
    with pytest.raises(UserError, match="dataset: .* is code that"):
        check_code(named, file)
    monkeypatch.chdir(file.parent)
    check_code(named, file, given=[("dataset", "mine.py:arrays")])
    check_code([("dataset", "text:play"), ("dataset", "a.csv")], file)
    assert with_full_paths("dataset", "mine.py:arrays") == f"{file}:arrays"
    assert with_full_paths("dataset", "patients.csv") == "patients.csv"


def test_a_kind_of_data_prepares_its_batches(dataset_of):
    found = dataset_of("Doubled")
    assert found.spec.shape == (4,)
    columns = {name: torch.from_numpy(column[np.arange(3)]) for name, column in found.train.columns.items()}
    inputs, _ = found.kind.prepare(np.arange(3), False)(columns)
    assert inputs.tolist() == [[0, 1, 0, 1], [2, 3, 2, 3], [4, 5, 4, 5]]
