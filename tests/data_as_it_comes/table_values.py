"""What stands in tables: numbers, words, missing values, ids, copies; and a file for each site."""

import numpy as np
import pandas as pd

from .table_case import PLAIN, USUAL, Cases, R, csv, encoded, text

CASES = Cases()
case = CASES.add


words = np.array(["None", "Mild", "Severe"])[np.arange(40) % 3]
case(
    "400 texts as label",
    (
        "label-column: 'label' holds 400 distinct texts, such as 'patient 0'; expected "
        "at most 100 classes: problem=classification takes more"
    ),
    csv(
        pd.DataFrame(
            {"a": np.random.default_rng(0).normal(size=400), "label": [f"patient {i}" for i in range(400)]}
        )
    ),
)
case(
    "yes and no in several spellings",
    (
        "label-column: 'label' holds 'No', 'no', 'Yes', 'yes ', which differ only in "
        "case or blanks; expected classes with names: 'label=no|yes'"
    ),
    csv(R.assign(label=np.array(["Yes", "yes ", "No", "no"])[np.arange(40) % 4])),
)
case(
    "values in several spellings",
    encoded(
        "age,bmi,sex=F|f|m",
        after=["'sex' has values that differ only in case or blanks: 'F', 'f' (guessed; columns decides)"],
    ),
    csv(R.assign(sex=np.array(["F", "f", "m"])[np.arange(40) % 3])),
)
case(
    "values in several spellings, named",
    encoded("age,sex=f|m", after=["'sex' is read without regard to case and blanks: 'F' as 'f', 'f ' as 'f'"])
    | {"left out": ["1 column that 'columns' does not name: 'bmi'"]},
    csv(R.assign(sex=np.array(["F", "f ", "m"])[np.arange(40) % 3])),
    columns="age,sex=f|m",
)
case("labels with blanks before", USUAL, text(PLAIN.replace(",0\n", ", no\n").replace(",1\n", ", yes\n")))
case("class None, no missing words", USUAL, csv(R.assign(label=words)), missing_values="")
case(
    "site empty",
    "partition: 'site' is missing in 20 rows; expected a value in each",
    csv(R.assign(site=np.array(["", "EU"])[np.arange(40) % 2])),
    partition="natural:site",
)
case(
    "dates",
    encoded(
        "age,bmi,sex=f|m,day",
        before=[
            "'day' of 't.csv' has dates, read as %Y-%m-%d (guessed; date-format decides)",
            "dates are days since 1970-01-01: 'day'",
        ],
    ),
    csv(R.assign(day=[f"2024-01-{1 + i % 28:02}" for i in range(40)])),
)


case(
    "column without values",
    USUAL | {"left out": ["'unit', a column without values"]},
    csv(R.assign(unit=np.nan)),
)
case(
    "unnamed column without values",
    USUAL | {"left out": ["'Unnamed: 0', a column without name and values"]},
    text(PLAIN.replace("age,", ",age,", 1).replace("\n", "\n,").rstrip(",")),
)
case("header only", "dataset: 'DATA/t.csv' has no rows", text("a,label\n"))
case("empty", "dataset: 'DATA/t.csv' is empty", text(""))
case("one column", "columns: no columns remain besides label", text("label\n" + "0\n1\n" * 10))
case(
    "names of patients",
    "columns: 'name' holds 160 distinct values; name the columns to use, or this one with its values",
    csv(pd.concat([R] * 4).assign(name=[f"n{i}" for i in range(160)])),
)


def sites2(folder):
    R[::2].to_csv(folder / "lyon.csv", index=False)
    R[1::2].rename(columns={"bmi": "BMI"}).to_csv(folder / "turin.csv", index=False)


case(
    "a file for each site, other columns",
    (
        "dataset: only 'DATA/lyon.csv' has 'bmi', only 'DATA/turin.csv' has 'BMI'; "
        "expected the same columns in each table"
    ),
    sites2,
)


case("one table in a folder", USUAL, lambda f: R.to_csv(f / "patients.csv", index=False))
case(
    "integers too large",
    "columns: 'a' holds integers of more than 64 bits; expected numbers or text: name the columns to use",
    text("a,label\n" + "".join(f"{10**25 + i},{i % 2}\n" for i in range(20))),
)
case(
    "infinite",
    "columns: 'a' holds numbers that are infinite or too large for float32",
    text("a,label\n" + "inf,0\n1,1\n" * 10),
)
