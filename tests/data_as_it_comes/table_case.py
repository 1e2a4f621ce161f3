"""What a case of a table is, and the writers of its files."""

import numpy as np
import pandas as pd

from . import case

HELD_OUT = "no test set: a fixed 20 % of the rows is held out"
BY_FILE = "no test set: a fixed 20 % of the rows of each 'file' is held out"
ENCODED = "categories are one-hot encoded in the order of 'age,bmi,sex=f|m'"
OWN_VALUE = (
    "has a value of its own in (nearly) each training row, as a row number or an id has; name the columns to "
    "use without it"
)
USUAL = {"examples": [HELD_OUT], "inputs": [ENCODED]}
ROW_INDEX = "'Unnamed: 0', a row index: distinct whole numbers without a name (guessed; columns decides)"
AS_CLASSES = "'label' holds 2 distinct whole numbers, read as classes (guessed; predict numbers decides)"
WITHOUT_LABEL = "1 row without a value in 'label'"


def encoded(order, before=(), after=()):
    """What is said of inputs in this order, between other lines on inputs, where a fifth is held out."""
    line = f"categories are one-hot encoded in the order of {order!r}"
    return {"examples": [HELD_OUT], "inputs": [*before, line, *after]}


def as_sites(*names):
    """The row by which each of these has a table."""
    return {"clients": [f"the tables of {', '.join(map(repr, names))} are read as sites"]}


class Cases(case.Cases):
    """Cases of the one file that a function writes, or the folder; in a line its name is DATA."""

    def add(self, name, says, write, **keys):
        self.append(case.Case(name, write, says, keys))


def rows(count=40):
    """Two numbers, a category and a label; nothing of them determines the label."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 80, count),
            "bmi": rng.normal(25, 4, count).round(1),
            "sex": rng.choice(["f", "m"], count),
            "label": rng.integers(0, 2, count),
        }
    )


def csv(frame, **options):
    return lambda folder: frame.to_csv(folder / "t.csv", **{"index": False} | options)


def text(content, name="t.csv", encoding="utf-8"):
    return lambda folder: (folder / name).write_bytes(
        content.encode(encoding) if isinstance(content, str) else content
    )


PLAIN = rows().to_csv(index=False)


def lines(*more):
    return "\n".join([PLAIN.rstrip("\n"), *more, ""])


R = rows()
