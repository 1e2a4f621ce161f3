"""A caller's arrays and Datasets as columns."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import IterableDataset, TensorDataset

pytest.importorskip("fedbn_flower.own_data")

from fedbn_flower.core.notes import Note
from fedbn_flower.data import Request, load_dataset
from fedbn_flower.data.readers.arrays import are_datasets, arrays_by_name, keep_arrays
from fedbn_flower.own_data.torch_datasets import pooled

from ...quick import diagonal_quick
from ..refusal import one_line

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (6, 5, 4, 3)).astype(np.uint8)
ROWS = RNG.normal(size=(6, 7))
Y = np.array([0, 1, 2, 0, 1, 2])


@pytest.fixture
def keep(cache_dir):
    def kept(*data, test=None, group_column=""):
        if len(data) == 1:
            name = keep_arrays(cache_dir, *pooled(*data, test))
        else:
            name = keep_arrays(cache_dir, arrays_by_name(data))
        return load_dataset(Request(name, group_column=group_column), cache_dir)

    return kept


@pytest.mark.parametrize(
    ("x", "expected", "kind"),
    [
        (COLOUR[..., 0], COLOUR[:, None, :, :, 0], "Images"),
        (COLOUR, COLOUR.transpose(0, 3, 1, 2), "Images"),
        (np.ascontiguousarray(COLOUR.transpose(0, 3, 1, 2)), COLOUR.transpose(0, 3, 1, 2), "Images"),
        (COLOUR[:, :3, :, :], COLOUR[:, :3], "Images"),
        (torch.from_numpy(COLOUR), COLOUR.transpose(0, 3, 1, 2), "Images"),
        (torch.from_numpy(ROWS).float(), ROWS.astype(np.float32), "Numeric"),
        (torch.from_numpy(np.rint(ROWS)).bfloat16(), np.rint(ROWS).astype(np.float32), "Numeric"),
        (COLOUR / 255, (COLOUR / 255).astype(np.float32), "Numeric"),
        (ROWS > 0, (ROWS > 0).astype(np.float32), "Numeric"),
    ],
)
def test_what_inputs_become(keep, x, expected, kind):
    """Channels are put first, see `channels_first`; ``Numeric`` is prepared as it is."""
    data = keep(x, Y, x[:2], Y[:2])
    assert type(data.kind).__name__ == kind
    np.testing.assert_array_equal(data.train.columns["x"], expected)
    np.testing.assert_array_equal(data.test.columns["x"], expected[:2])
    assert data.train.columns["x"].dtype == (np.uint8 if kind == "Images" else np.float32)
    assert (data.spec.shape, data.spec.outputs) == (expected.shape[1:], 3)
    taken = {
        (6, 5, 4, 3): "the last axis of x, uint8 (6, 5, 4, 3), is taken for the channels",
        (6, 3, 4, 3): "the second axis of x, uint8 (6, 3, 4, 3), is taken for the channels, not the last",
    }
    of_shape = taken.get(tuple(x.shape)) if kind == "Images" else None
    assert data.notes == ((Note("inputs", of_shape),) if of_shape else ())


TARGETS = [
    (Y, Y, 3, "classes"),
    (Y * 2, Y * 2, 5, "classes"),
    (Y > 0, [0, 1, 1, 0, 1, 1], 2, "classes"),
    (Y / 2, Y[:, None] / 2, 1, "numbers"),
    (Y[:, None].astype(float), Y, 3, "classes"),
    (Y - 1.0, Y, 3, "classes"),
    (Y * 50.0, Y, 3, "classes"),
    (ROWS[:, :2], ROWS[:, :2].astype(np.float32), 2, "numbers"),
]


@pytest.mark.parametrize(
    ("x", "target"), diagonal_quick([ROWS, COLOUR, COLOUR[..., 0], COLOUR / 255], TARGETS)
)
def test_what_targets_become(keep, x, target):
    y, expected, outputs, predicts = target
    data = keep(x, y, x, y)
    for split in (data.train, data.test):
        np.testing.assert_array_equal(split.columns["y"], expected)
        assert split.columns["y"].dtype == (np.int64 if predicts == "classes" else np.float32)
    assert (data.spec.outputs, data.spec.predicts) == (outputs, predicts)
    assert data.has_classes == (predicts == "classes")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ((ROWS[:, 0], Y, ROWS, Y), "x is float64 (6,); expected uint8 images"),
        ((ROWS.astype(complex), Y, ROWS, Y), "x is complex128"),
        ((COLOUR.astype(int), Y, COLOUR, Y), "x is int64 (6, 5, 4, 3); expected uint8 images"),
        ((np.zeros((6, 2, 2, 2, 2), np.uint8), Y, ROWS, Y), "integers are images only as uint8"),
        ((ROWS * 1e39, Y, ROWS, Y), "x holds values that are not finite"),
        ((ROWS, Y, ROWS[:, :3], Y), "an example of x is float32 (7,), of x_test float32 (3,)"),
        ((ROWS, Y, ROWS, Y / 2), "an example of y is int64 (), of y_test float32 (1,)"),
        ((ROWS, Y[:, None], ROWS, Y), "y is int64 (6, 1); expected 6 class numbers >= 0, or as many rows of"),
        ((ROWS, Y - 1, ROWS, Y), "y is int64 (6,); expected 6 class numbers >= 0"),
        ((ROWS, Y, ROWS, [1]), "y_test is of type list; expected a NumPy array"),
        ((ROWS, Y * np.nan, ROWS, Y), "y holds values that are not finite"),
        ((ROWS, Y.astype(str), ROWS, Y), "y is <U21 (6,); expected 6 class numbers"),
        ((ROWS, Y), "data: (ndarray, ndarray) is not allowed; expected the four arrays (x, y, x_test,"),
        ([TensorDataset(torch.zeros(2)), 3], "expected the four arrays"),
    ],
)
def test_other_arrays_are_refused(tmp_path, data, words):
    assert not are_datasets(data)
    with one_line(words):
        keep_arrays(tmp_path, arrays_by_name(data))


# ---- a Dataset a client ----------------------------------------------------------------------------------


def dataset(rows, y=Y):
    return TensorDataset(torch.from_numpy(ROWS[rows]), torch.from_numpy(y[rows]))


def test_clients_are_those_that_are_named(keep):
    data = {"w10": dataset([0, 1]), "w2": dataset([2, 3, 4])}
    test = {"w2": dataset([5]), "w10": dataset([1, 0])}
    found = keep(data, test=test, group_column="client")
    np.testing.assert_array_equal(found.train.columns["x"], ROWS[:5].astype(np.float32))
    assert found.train.groups.tolist() == ["w10", "w10", "w2", "w2", "w2"]
    assert found.test.columns["y"].tolist() == [2, 1, 0]
    assert found.test.groups.tolist() == ["w2", "w10", "w10"]
    assert found.notes == ()


def test_a_test_set_for_all_has_no_clients(keep):
    found = keep([dataset([0, 1]), dataset([2, 3])], test=dataset([4, 5]), group_column="client")
    assert found.train.groups.tolist() == ["0", "0", "1", "1"]
    assert found.test.groups.tolist() == ["", ""]
    np.testing.assert_array_equal(found.test.columns["x"], ROWS[[4, 5]].astype(np.float32))


def test_without_one_a_fifth_of_each_client_is_held_out(keep):
    x, y = np.arange(40.0)[:, None], np.tile([0, 1], 20)
    data = {
        name: TensorDataset(torch.tensor(x[rows]), torch.tensor(y[rows]))
        for name, rows in (("b", slice(0, 30)), ("a", slice(30, 40)))
    }
    found = keep(data)
    assert (found.test.groups == "b").sum() == 6
    assert (found.test.groups == "a").sum() == 2
    for split in (found.train, found.test):
        np.testing.assert_array_equal(split.groups == "b", split.columns["x"][:, 0] < 30)
        np.testing.assert_array_equal(split.columns["x"][:, 0] % 2, split.columns["y"])
    assert len(np.unique(np.concatenate([found.train.columns["x"], found.test.columns["x"]]))) == 40
    held_out = "no test is given: a fixed fifth of each client's examples is held out"
    assert found.notes == (Note("examples", held_out),)


def test_images_are_those_of_pil_with_the_channels_first(keep):
    items = [(Image.fromarray(image), label) for image, label in zip(COLOUR, Y.tolist(), strict=True)]
    found = keep([items[:3], items[3:]], test=TwoImages(items))
    np.testing.assert_array_equal(found.train.columns["x"], COLOUR.transpose(0, 3, 1, 2))
    assert found.train.columns["y"].tolist() == Y.tolist()
    assert found.notes == ()


class Mirrored(TensorDataset):
    """Mirrors each item in every other reading, as a random transform may."""

    mirrored = False

    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        self.mirrored = not self.mirrored if i == 0 else self.mirrored
        return x.flip(0) if self.mirrored else x, y


@pytest.mark.parametrize("test", [None, dataset([5])])
def test_of_items_that_are_drawn_at_random_it_is_said_that_one_draw_is_kept(keep, test):
    """Whoever augments in a Dataset would train without it, in silence."""
    mirrored = Mirrored(*dataset([0, 1, 2, 3]).tensors)
    found = keep([dataset([4, 5]), mirrored], test=test)
    said = [note for note in found.notes if note.row == "inputs"]
    assert [note.text.split(":")[0] for note in said] == [
        "items are others when they are read again, as after a random transform"
    ]


class Once(TensorDataset):
    """Gives each item once, as what is read from a consumed file."""

    def __init__(self, *tensors):
        super().__init__(*tensors)
        self.left = set(range(len(self)))

    def __getitem__(self, i):
        self.left.remove(i)
        return super().__getitem__(i)


def test_items_that_are_given_once_only_are_no_random_draws(keep):
    found = keep([Once(*dataset([0, 1, 2]).tensors), Once(*dataset([3, 4]).tensors)], test=dataset([5]))
    assert found.train.columns["y"].tolist() == Y[:5].tolist()
    assert not found.notes


class TwoImages:
    """Any class with a length and items by number will do."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return 2

    def __getitem__(self, i):
        return self.items[i]


class Endless(IterableDataset):
    def __iter__(self):
        yield from ()


class Raises(TwoImages):
    def __getitem__(self, i):
        raise KeyError("no\nsuch file")


@pytest.mark.parametrize(
    ("data", "test", "words"),
    [
        ({}, None, "data: the clients' names are []; expected a different one per client"),
        ({1: dataset([0]), "1": dataset([1])}, None, "data: the clients' names are ['1', '1']; expected"),
        ({"a": ROWS}, None, "data of client 'a' is a ndarray; expected a Dataset"),
        ({"a": Endless()}, None, "or a pair of arrays; list(...) makes one of what ends"),
        ([[]], None, "data of client '0' has no examples"),
        ([[{"x": 1, "y": 2}]], None, "item 0 of data of client '0' is a dict; expected a pair"),
        ([[(1, "cat")]], None, "item 0 of data of client '0' holds a str; expected tensors, arrays or num"),
        ([[([1, [2, 3]], 0)]], None, "item 0 of data of client '0' cannot be converted to an array"),
        ([[(1.0, 0), (2, 0)]], None, "item 1 of data of client '0' has int64 (), item 0 has float64 ()"),
        ([[(1.0, 0)], [(1.0, 0.5)]], None, "an example of client '1' is float64 (), another's is int64 ()"),
        (
            [[([1, 2], 0)], [([3], 1)]],
            None,
            "an example of client '1' is int64 (1,), another's is int64 (2,)",
        ),
        ([Raises([])], None, "item 0 of data of client '0' raised KeyError: 'no\\nsuch file'"),
        ([dataset([0, 1, 2])], None, "data: 3 examples; expected at least 5 if no test is given"),
        ([dataset([0])], [dataset([0]), dataset([1])], "test: is for the clients 0, 1; expected 0"),
        ([dataset([0])], 3, "test is a int; expected a Dataset"),
    ],
)
def test_other_datasets_are_refused(data, test, words):
    with one_line(words):
        pooled(data, test)
