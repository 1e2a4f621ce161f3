"""What stands in tables: numbers, words, missing values, ids, copies; and a file for each site."""

import numpy as np
import pandas as pd

from .table_case import (
    AS_CLASSES,
    BY_FILE,
    ENCODED,
    HELD_OUT,
    OWN_VALUE,
    PLAIN,
    USUAL,
    Cases,
    R,
    as_sites,
    csv,
    encoded,
    text,
)

CASES = Cases()
case = CASES.add


words = np.array(["None", "Mild", "Severe"])[np.arange(40) % 3]
case(
    "semicolons and decimal commas",
    encoded("age,bmi,sex=f|m", before=["'t.csv' has decimal commas, as in 'bmi'"]),
    csv(R, sep=";", decimal=","),
)
case(
    "thousands",
    encoded(
        "age,bmi,sex=f|m,cost",
        before=["'t.csv' has commas between thousands, as in 'cost' (guessed; thousands decides)"],
    ),
    csv(R.assign(cost=[f"{1000 + 37 * i:,}.50" for i in range(40)])),
)
case(
    "label with thousands",
    encoded(
        "age,bmi,sex=f|m",
        before=["'t.csv' has commas between thousands, as in 'label' (guessed; thousands decides)"],
    ),
    csv(R.assign(label=[f"{1000 + 37 * i:,}.50" for i in range(40)])),
)
case(
    "label with dots for thousands",
    (
        "label-column: 'label' holds numbers as text, such as '1.100,50'; write decimals "
        "with a point, and no separators of thousands"
    ),
    csv(R.assign(label=[f"{1 + i}.{100 + 3 * i},50" for i in range(40)])),
)
case(
    "label with blanks for thousands",
    (
        "label-column: 'label' holds numbers as text, such as '1 100,50'; write decimals "
        "with a point, and no separators of thousands"
    ),
    csv(R.assign(label=[f"{1 + i} {100 + 3 * i},50" for i in range(40)])),
)
case(
    "percent signs",
    "columns: 'share' holds numbers as text, such as '0%'; write numbers without a sign of their unit",
    csv(R.assign(share=[f"{i}%" for i in range(40)])),
)
case(
    "currency",
    (
        "columns: 'cost' holds numbers as text, such as '$1,000.00'; write numbers "
        "without a sign of their unit"
    ),
    csv(R.assign(cost=[f"${1000 + 37 * i:,}.00" for i in range(40)])),
)
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
    "yes and no in several spellings, named",
    USUAL
    | {"target": ["read without regard to case and blanks: 'No' as 'no', 'Yes' as 'yes', 'yes ' as 'yes'"]},
    csv(R.assign(label=np.array(["Yes", "yes ", "No", "no"])[np.arange(40) % 4])),
    label_column="label=no|yes",
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
case(
    "class None",
    USUAL
    | {
        "left out": [
            (
                "14 rows without a value in 'label', where 'None' (14) is taken for none "
                "(guessed; missing-values decides)"
            )
        ]
    },
    csv(R.assign(label=words)),
)
case("class None that is named", USUAL, csv(R.assign(label=words)), label_column="label=None|Mild|Severe")
case("class None, no missing words", USUAL, csv(R.assign(label=words)), missing_values="")
case(
    "site NA",
    {"examples": ["no test set: a fixed 20 % of the rows of each 'site' is held out"], "inputs": [ENCODED]},
    csv(R.assign(site=np.array(["NA", "EU"])[np.arange(40) % 2])),
    partition="natural:site",
)
case(
    "site empty",
    "partition: 'site' is missing in 20 rows; expected a value in each",
    csv(R.assign(site=np.array(["", "EU"])[np.arange(40) % 2])),
    partition="natural:site",
)
case(
    "missing words in columns",
    encoded(
        "age,bmi,sex=f|m",
        after=[
            "missing values (age 10, sex 8): numbers are filled with their mean, categories "
            "are encoded as zeros",
            "words taken for missing values: in 'age' 'NA' (10), in 'sex' 'n/a' (8) "
            "(guessed; missing-values decides)",
        ],
    ),
    csv(R.assign(age=R.age.astype(object).where(R.age > 30, "NA"), sex=R.sex.where(R.age > 25, "n/a"))),
)
case(
    "a question mark for missing",
    (
        "columns: 'age' holds numbers and '?'; leave missing values empty, or name their "
        "words: missing-values='?'"
    ),
    csv(R.assign(age=R.age.astype(object).where(R.age > 30, "?"))),
)
case(
    "a question mark that is named",
    encoded(
        "age,bmi,sex=f|m",
        after=[
            "missing values (age 10): numbers are filled with their mean, categories are encoded as zeros"
        ],
    ),
    csv(R.assign(age=R.age.astype(object).where(R.age > 30, "?"))),
    missing_values="?",
)
case(
    "-999 that is named",
    encoded(
        "age,bmi,sex=f|m",
        after=[
            "missing values (age 10): numbers are filled with their mean, categories are encoded as zeros"
        ],
    ),
    csv(R.assign(age=R.age.where(R.age > 30, -999))),
    missing_values="-999",
)
case(
    "a value with a bar",
    encoded("age,bmi,sex=f\\|x|m"),
    csv(R.assign(sex=np.array(["f|x", "m"])[np.arange(40) % 2])),
)
case(
    "a name with a comparison",
    encoded('age>\\=65,"a,b",c\\=d=f|m'),
    csv(R.rename(columns={"age": "age>=65", "bmi": "a,b", "sex": "c=d"})),
)
case(
    "a name with a comparison, named",
    encoded("age>\\=65,sex=f|m") | {"left out": ["1 column that 'columns' does not name: 'bmi'"]},
    csv(R.rename(columns={"age": "age>=65"})),
    columns="age>=65,sex=f|m",
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
    "dates, other columns named",
    {"examples": [HELD_OUT], "left out": ["2 columns that 'columns' does not name: 'sex', 'day'"]},
    csv(R.assign(day=[f"2024-01-{1 + i % 28:02}" for i in range(40)])),
    columns="age,bmi",
)


def pqdate(folder):
    R.assign(day=pd.date_range("2024-01-01", periods=40)).to_parquet(folder / "t.parquet")


case(
    "parquet, times",
    encoded("age,bmi,sex=f|m,day", before=["dates are days since 1970-01-01: 'day'"])
    | {
        "doubts?": [
            "columns: ids? 'day' has a value of its own in (nearly) each training row, as a row number or an "
            "id has; name the columns to use without it"
        ]
    },
    pqdate,
)
case(
    "constant column",
    encoded(
        "age,bmi,sex=f|m,unit",
        after=["with one value in all training rows, which teaches nothing: 'unit' (7)"],
    ),
    csv(R.assign(unit=7)),
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
case("truth values as labels", USUAL, csv(R.assign(label=R.label == 1)))
case(
    "0, 1 and NA as labels",
    USUAL
    | {
        "left out": [
            (
                "10 rows without a value in 'label', where 'NA' (10) is taken for none (guessed; "
                "missing-values decides)"
            )
        ],
        "target": [AS_CLASSES],
    },
    csv(R.assign(label=R.label.astype(object).where(R.age > 30, "NA"))),
)
case("whole floats as labels", USUAL | {"target": [AS_CLASSES]}, csv(R.assign(label=R.label * 1.0)))
case(
    "rows that are copies",
    USUAL | {"examples": [HELD_OUT, "(nearly) each row stands twice or more often: 40 of 120 differ"]},
    csv(pd.concat([R] * 3)),
)
case("header only", "dataset: 'DATA/t.csv' has no rows", text("a,label\n"))
case("empty", "dataset: 'DATA/t.csv' is empty", text(""))
case("one column", "columns: no columns remain besides label", text("label\n" + "0\n1\n" * 10))
case(
    "names of patients",
    "columns: 'name' holds 160 distinct values; name the columns to use, or this one with its values",
    csv(pd.concat([R] * 4).assign(name=[f"n{i}" for i in range(160)])),
)
case(
    "ids",
    encoded("age,bmi,sex=f|m,id") | {"doubts?": [f"columns: ids? 'id' {OWN_VALUE}"]},
    csv(pd.concat([R] * 4).assign(id=range(160))),
)
case(
    "a copy of the label",
    encoded("age,bmi,sex=f|m,diagnosis=ill|well")
    | {
        "leaks?": [
            (
                "columns: leaks? 'diagnosis' alone determines the target of all 32 training "
                "rows, by its value, as a copy, an id, a row number or a date does; name the "
                "columns to use without it"
            )
        ]
    },
    csv(R.assign(diagnosis=np.array(["well", "ill"])[R.label])),
)
case(
    "sorted by label, a row number",
    encoded("age,bmi,sex=f|m,number")
    | {
        "leaks?": [
            (
                "columns: leaks? 'number' alone determines the target of all 32 training rows, "
                "by thresholds, as a copy, an id, a row number or a date does; name the columns "
                "to use without it"
            )
        ],
        "doubts?": [f"columns: ids? 'number' {OWN_VALUE}"],
    },
    csv(R.sort_values("label").assign(number=range(40))),
)
case(
    "label in another unit",
    encoded("age,bmi,sex=f|m,cents")
    | {
        "leaks?": [
            (
                "columns: leaks? 'cents' alone determines the target of all 32 training rows, by "
                "its order, as a copy, an id, a row number or a date does; name the columns to "
                "use without it"
            )
        ]
    },
    csv(R.assign(label=R.bmi * 1.7 + R.age / 3, cents=(R.bmi * 1.7 + R.age / 3) * 100)),
)


def sites(folder):
    for i, site in enumerate(["lyon", "turin", "graz"]):
        R[i::3].to_csv(folder / f"{site}.csv", index=False)


case(
    "a file for each site",
    {"examples": [BY_FILE], "inputs": [ENCODED]} | as_sites("graz", "lyon", "turin"),
    sites,
)
case(
    "a file for each site, by file",
    {"examples": [BY_FILE], "inputs": [ENCODED]} | as_sites("graz", "lyon", "turin"),
    sites,
    partition="natural:file",
    num_clients=3,
)
case(
    "a file for each site, by folder",
    {"examples": ["no test set: a fixed 20 % of the rows of each 'folder' is held out"], "inputs": [ENCODED]}
    | as_sites("graz", "lyon", "turin"),
    sites,
    partition="natural:folder",
    num_clients=3,
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


def sites3(folder):
    for split in ("train", "test"):
        (folder / split).mkdir()
        for i, site in enumerate(["lyon", "turin"]):
            R[i + 2 * (split == "test") :: 4].to_csv(folder / split / f"{site}.csv", index=False)


case(
    "files of sites in train and test",
    {"inputs": [ENCODED]} | as_sites("lyon", "turin"),
    sites3,
    partition="natural:file",
    num_clients=2,
)


def sites4(folder):
    for i, site in enumerate(["lyon", "turin"]):
        (folder / site).mkdir()
        for j, split in enumerate(("train", "test")):
            R[i + 2 * j :: 4].to_csv(folder / site / f"{split}.csv", index=False)


case(
    "folders of sites with train and test",
    {"inputs": [ENCODED]} | as_sites("lyon", "turin"),
    sites4,
    partition="natural:file",
    num_clients=2,
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
