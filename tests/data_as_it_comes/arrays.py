"""Arrays and Datasets as people pass them to `simulate`, and what is said of each before it is learnt.

A case is a name, a function that returns the arguments of `simulate`, and what is expected: the inputs and
targets in words, and the notes by row of the table; or the one line that refuses it. What usual arrays become
is in `api/test_arrays.py`.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

N, M = 40, 10
Y, Y_TEST = np.arange(N) % 2, np.arange(M) % 2
IS = "is"
"""The key of what the examples are."""
TWO = "3 in 2 classes"
AS_CLASSES = (
    "the targets are 2 distinct whole numbers as floats, read as classes "
    "(guessed; problem regression decides)"
)
OF_ONE_MODEL = (
    "each client is evaluated on all test examples, since all have one model, and the data name no sites "
    "(guessed; eval-data decides)"
)
"""Said of arrays that are divided, and left out of the table."""
OWN = (
    "each client is evaluated on its own test examples, since clients are sites (guessed; eval-data decides)"
)
OF_NO_TEST = (
    "each client is evaluated on all test examples, since 2 of 2 clients (the first is 0) have none of their "
    "own (guessed; eval-data decides)"
)


def rows(count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(count).normal(size=(count, *(shape or (3,))))


def images(count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, *shape)).astype(np.uint8)


def arrays(x: Any, x_test: Any, y: Any = Y, y_test: Any = Y_TEST, **keys: Any) -> dict[str, Any]:
    return {"data": (x, y, x_test, y_test), **keys}


def made(function: Callable[[np.ndarray], Any], **keys: Any) -> dict[str, Any]:
    """Rows of three normal numbers, changed."""
    return arrays(function(rows(N)), function(rows(M)), **keys)


def with_values(*values: float) -> Callable[[np.ndarray], np.ndarray]:
    def changed(x: np.ndarray) -> np.ndarray:
        x[4 : 4 + len(values), 1] = values
        return x

    return changed


def targets(function: Callable[[np.ndarray], Any]) -> dict[str, Any]:
    return arrays(rows(N), rows(M), function(Y), function(Y_TEST))


class Pairs(Dataset):
    """Items that are made when they are asked for."""

    def __init__(self, count: int, make: Callable[[int], tuple[Any, Any]]) -> None:
        self.count, self.make = count, make

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> tuple[Any, Any]:
        return self.make(i)


def datasets(make: Callable[[int], tuple[Any, Any]]) -> dict[str, Any]:
    return {"data": [Pairs(20, make), Pairs(20, make)], "test": Pairs(M, make)}


def pair(count: int) -> tuple[np.ndarray, np.ndarray]:
    return rows(count), np.arange(count) % 2


def frames(count: int) -> tuple[pd.DataFrame, pd.Series]:
    x, y = pair(count)
    return pd.DataFrame(x), pd.Series(y)


FAR = "distinct values that float32 keeps apart: "
SUBTRACT = "; normalize=true keeps more, since it subtracts the mean first"
HELD_OUT = "no test is given: a fixed fifth of each client's examples is held out"
NOT_FINITE = "data: x holds values that are not finite "
FILL = "fill them in, or leave these examples out"
FORMS = "expected the four arrays (x, y, x_test, y_test), or a Dataset or a pair (x, y) for each client"
INPUTS = "uint8 images (N, height, width) or with 1 to 4 channels, or an array of numbers (N, ...)"
NUMBERS = f"{N} class numbers >= 0, or as many rows of floats, or of labels of 0 and 1"
NO_YES = "np.searchsorted(['no', 'yes'], y) numbers the words"
SECONDS = np.arange(1_700_000_000, 1_700_000_000 + N)[:, None]

Expected = dict[str, list[str]] | str
CASES: list[tuple[str, Callable[[], dict[str, Any]], Expected]] = [
    # ---- numbers ------------------------------------------------------------------------------------------
    ("float16", lambda: made(lambda x: x.astype(np.float16)), {IS: [TWO]}),
    ("longdouble", lambda: made(lambda x: x.astype(np.longdouble)), {IS: [TWO]}),
    ("big-endian", lambda: made(lambda x: x.astype(">f8")), {IS: [TWO]}),
    ("np.matrix", lambda: made(np.matrix), {IS: [TWO]}),
    (
        "Unix seconds, int64",
        lambda: arrays(SECONDS, SECONDS[:M]),
        {IS: ["1 in 2 classes"], "inputs": [f"{FAR}x[:, 0] 1 of 40{SUBTRACT}"]},
    ),
    (
        "Unix nanoseconds, normalised",
        lambda: arrays(SECONDS * 10**9, SECONDS[:M] * 10**9, normalize=True),
        {IS: ["1 in 2 classes"]},
    ),
    (
        "dates",
        lambda: arrays(SECONDS.astype("datetime64[s]"), SECONDS[:M].astype("datetime64[s]")),
        f"data: x is datetime64[s] (40, 1); expected {INPUTS}: as seconds, "
        "array.astype('datetime64[s]').astype(np.int64)",
    ),
    (
        "complex numbers",
        lambda: made(lambda x: x + 1j),
        f"data: x is complex128 (40, 3); expected {INPUTS}: real and imaginary part side by side, or the "
        "absolute value",
    ),
    (
        "decimals",
        lambda: made(lambda x: np.array([[Decimal(str(v)) for v in row] for row in x])),
        {IS: [TWO]},
    ),
    (
        "text and numbers",
        lambda: made(lambda x: np.array([["f", *row[1:]] for row in x.tolist()], object)),
        f"data: x is object (40, 3); expected {INPUTS}: numbers only; a table, CSV or Parquet, may hold text",
    ),
    (
        "missing, infinite and too large numbers",
        lambda: made(with_values(np.nan, -np.inf, 1e39)),
        f"{NOT_FINITE}(1 NaN, 1 infinite, 1 too large for float32; the first in row 4): {FILL}",
    ),
    ("masked values", lambda: made(lambda x: np.ma.masked_less(x, 0)), f"data: x has masked values: {FILL}"),
    (
        "a DataFrame",
        lambda: made(pd.DataFrame),
        "data: x is of type DataFrame; expected a NumPy array, such as x.to_numpy()",
    ),
    ("no test examples", lambda: arrays(rows(N), rows(0), y_test=Y_TEST[:0]), "data: x_test has no examples"),
    (
        "fewer targets than inputs",
        lambda: arrays(rows(N), rows(M), Y[1:]),
        f"data: y is int64 (39,); expected {NUMBERS}",
    ),
    (
        "arrays without a test set",
        lambda: {"data": (rows(N), Y)},
        f"data: (ndarray, ndarray) is not allowed; {FORMS}; without a test set, data=[(x, y)] with "
        "partition='iid' holds a fifth out",
    ),
    (
        "a pair of arrays of one client",
        lambda: {"data": [(rows(N), Y)], "partition": "iid", "num_clients": 2},
        {IS: [TWO], "examples": ["no test is given: a fixed fifth of each client's examples is held out"]},
    ),
    (
        "a DataFrame and a Series",
        lambda: {"data": (pd.DataFrame(rows(N)), pd.Series(Y))},
        f"data: (DataFrame, Series) is not allowed; {FORMS}, such as x.to_numpy()",
    ),
    (
        "a DataFrame alone",
        lambda: {"data": pd.DataFrame(rows(N))},
        f"data: an object of type DataFrame is not allowed; {FORMS}, such as x.to_numpy()",
    ),
    (
        "two lists",
        lambda: {"data": (rows(N).tolist(), Y.tolist())},
        f"data: (list, list) is not allowed; {FORMS}, such as np.asarray(x)",
    ),
    # ---- tensors ------------------------------------------------------------------------------------------
    ("tensors with gradients", lambda: made(lambda x: torch.tensor(x, requires_grad=True)), {IS: [TWO]}),
    (
        "sparse tensors",
        lambda: made(lambda x: torch.tensor(x).to_sparse()),
        "data: x cannot be converted to an array (can't convert Sparse layout tensor to numpy. Use "
        "Tensor.to_dense() first.)",
    ),
    # ---- tokens -------------------------------------------------------------------------------------------
    (
        "tokens, and a model with an embedding",
        lambda: arrays(
            np.arange(N * 12).reshape(N, 12) % 40,
            np.arange(M * 12).reshape(M, 12) % 40,
            model="tests.fedbn_flower.models.test_integers:Mean",
        ),
        {
            IS: ["12 in 2 classes"],
            "inputs": [
                "whole numbers, int64, as model 'tests.fedbn_flower.models.test_integers:Mean' takes them"
            ],
        },
    ),
    # ---- targets ------------------------------------------------------------------------------------------
    (
        "labels from 1",
        lambda: targets(lambda y: y + 1),
        {
            IS: ["3 in 3 classes"],
            "target": ["only 2 of the class numbers 0-2 occur; the model has 3 outputs"],
        },
    ),
    (
        "labels as text",
        lambda: targets(lambda y: np.array(["no", "yes"])[y]),
        f"data: y is <U3 (40,); expected {N} class numbers >= 0: {NO_YES}",
    ),
    (
        "a word that one client lacks",
        lambda: {"data": {"a": (rows(5), np.array(["no"] * 5)), "b": (rows(5), np.array(["yes"] * 5))}},
        f"data of client 'a': y is <U2 (5,); expected 5 class numbers >= 0: {NO_YES}",
    ),
    (
        "many words",
        lambda: {"data": [(rows(N), np.array([f"w{i % 12}" for i in range(N)], object))]},
        f"data of client '0': y is object ({N},); expected {N} class numbers >= 0: "
        "np.searchsorted(classes, y), with classes = sorted(set(y)) of all of them, numbers the words",
    ),
    (
        "a missing target, and no test set",
        lambda: {"data": [(rows(N), np.where(np.arange(N) == 9, np.nan, Y))]},
        f"data of client '0': y holds values that are not finite (1 NaN; the first in row 9): {FILL}",
    ),
    (
        "two clients of one",
        lambda: {"data": [pair(N)], "num_clients": 2},
        "num-clients: 2 is not allowed; expected at most 1, the number of natural clients, or partition "
        "'iid', which divides its examples",
    ),
    (
        "a table's name",
        lambda: {"data": "patients.csv"},
        f"data: 'patients.csv' is not allowed; {FORMS}, or simulate(dataset='patients.csv')",
    ),
    ("labels as objects", lambda: targets(lambda y: y.astype(object)), {IS: [TWO]}),
    ("labels one-hot", lambda: targets(lambda y: np.eye(2)[y]), {IS: ["3 to 2 numbers"]}),
    ("labels as floats", lambda: targets(lambda y: y.astype(float)), {IS: [TWO], "target": [AS_CLASSES]}),
    (
        "labels as floats, stated to be numbers",
        lambda: targets(lambda y: y.astype(float)) | {"problem": "regression"},
        {IS: ["3 to 1 numbers"]},
    ),
    (
        "times to predict",
        lambda: arrays(rows(N), rows(M), SECONDS[:, 0] + 0.5, SECONDS[:M, 0] + 0.5),
        {IS: ["3 to 1 numbers"], "target": [f"{FAR}y 1 of 40; subtract a constant first"]},
    ),
    # ---- by client ----------------------------------------------------------------------------------------
    (
        "tests by client",
        lambda: {"data": {"a": pair(30), "b": pair(20)}, "test": {"a": pair(5), "b": pair(5)}},
        {IS: [TWO], "examples": [OWN]},
    ),
    (
        "one test for all",
        lambda: {"data": [pair(30), pair(20)], "test": pair(5)},
        {IS: [TWO], "examples": [OF_NO_TEST]},
    ),
    ("no test", lambda: {"data": [pair(30), pair(20)]}, {IS: [TWO], "examples": [HELD_OUT, OWN]}),
    (
        "an empty test of a client",
        lambda: {"data": {"a": pair(30), "b": pair(20)}, "test": {"a": pair(5), "b": pair(0)}},
        "test of client 'b' has no examples",
    ),
    (
        "a test of another client",
        lambda: {"data": {"a": pair(30), "b": pair(20)}, "test": {"a": pair(5), "c": pair(5)}},
        "test: is for the clients a, c; expected a, b",
    ),
    (
        "DataFrames by client",
        lambda: {"data": {"a": frames(30), "b": frames(20)}},
        "data of client 'a' is a pair of DataFrame and Series; expected a pair of arrays, such as "
        "x.to_numpy()",
    ),
    (
        "a DataFrame by client",
        lambda: {"data": {"a": frames(30)[0], "b": frames(20)[0]}},
        "data of client 'a' is a DataFrame; expected a Dataset with __len__ and __getitem__, or a pair of "
        "arrays, such as x.to_numpy()",
    ),
    (
        "lists by client",
        lambda: {"data": {"a": ([[1.0, 2.0], [3.0, 4.0]], [0, 1])}},
        "data of client 'a' is a pair of list and list; expected a pair of arrays, such as np.asarray(x)",
    ),
    # ---- Datasets -----------------------------------------------------------------------------------------
    (
        "TensorDatasets",
        lambda: {"data": [TensorDataset(*map(torch.tensor, pair(20)))] * 2, "test": pair(5)},
        {IS: [TWO], "examples": [OF_NO_TEST]},
    ),
    (
        "items that are made",
        lambda: datasets(lambda i: (torch.full((3,), i / 7), i % 2)),
        {IS: [TWO], "examples": [OF_NO_TEST]},
    ),
    (
        "pictures of PIL",
        lambda: datasets(lambda i: (Image.fromarray(images(i + 1, 8, 9, 3)[0]), i % 2)),
        {IS: ["3x8x9 in 2 classes"], "examples": [OF_NO_TEST]},
    ),
]
