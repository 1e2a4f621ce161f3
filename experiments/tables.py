"""Write the tables of hospitals.toml and tables.toml, from those that scikit-learn brings.

    python experiments/tables.py runs/data

``hospitals.csv``: 569 patients of the Wisconsin breast cancer set, shuffled, in ten hospitals of sizes as 1
to 10, each with a gain in [0.5, 2] and an offset of its own on every column, as if its devices were others.
``digits.csv``: 1,797 digits as 64 numbers. ``diabetes.csv``: 442 patients, a number to be predicted.
"""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

HOSPITALS = 10


def hospitals() -> tuple[list[str], list[list[object]]]:
    """Header and rows of the hospitals' table."""
    data = load_breast_cancer()
    rng = np.random.default_rng(0)
    order = rng.permutation(len(data.data))
    shares = np.cumsum(np.arange(1, HOSPITALS + 1)) / (HOSPITALS * (HOSPITALS + 1) / 2)
    sites = np.searchsorted(shares, (np.arange(len(order)) + 0.5) / len(order))
    columns = data.data.shape[1]
    gain = np.exp(rng.uniform(-np.log(2), np.log(2), (HOSPITALS, columns)))
    offset = rng.normal(size=(HOSPITALS, columns)) * data.data.std(axis=0)
    values = gain[sites] * data.data[order] + offset[sites]
    names = [str(name).replace(" ", "-") for name in data.feature_names]
    rows = zip(sites, values, data.target[order], strict=True)
    return ["site", *names, "outcome"], [[f"h{s}", *x.round(6), data.target_names[y]] for s, x, y in rows]


def plain(data: NDArray[np.float64], target: NDArray[np.float64]) -> tuple[list[str], list[list[object]]]:
    """Header and rows of a table of numbers and its labels."""
    return [f"x{i}" for i in range(data.shape[1])] + ["label"], [
        [*x, y] for x, y in zip(data, target, strict=True)
    ]


def write(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a CSV file."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def main(folder: Path) -> None:
    """Write all tables to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "hospitals.csv", *hospitals())
    write(folder / "digits.csv", *plain(*load_digits(return_X_y=True)))
    write(folder / "diabetes.csv", *plain(*load_diabetes(return_X_y=True, scaled=False)))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python experiments/tables.py FOLDER")
    main(Path(sys.argv[1]))
