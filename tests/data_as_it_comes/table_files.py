"""Files that are no plain table: several of one table or of sites, titles, nested cells, joined labels."""

import numpy as np

from fedbn_flower.core.text import number_of

from .table_case import BY_FILE, ENCODED, HELD_OUT, PLAIN, USUAL, Cases, R, as_sites, csv, encoded, text

CASES = Cases()
case = CASES.add


COMMAS = R.assign(bmi=[str(value).replace(".", ",") for value in R.bmi])
FLATTEN = "expected one value in each cell: write a column for each of its parts"


def sites(odd, name="turin", **options):
    """Three tables, one of which is another one."""

    def write(folder):
        for site in ("bonn", "lyon", "turin"):
            frame, how = (odd, options) if site == name else (R, {})
            frame.to_csv(folder / f"{site}.csv", index=False, **how)

    return write


for odd, name, found in (
    (R.drop(columns="bmi"), "bonn", "lacks 'bmi'"),
    (R.assign(bmj=R.bmi), "bonn", "has 'bmj'"),
    (R.rename(columns={"bmi": "BMI", "age": "Age"}), "turin", "lacks 'age', 'bmi' and has 'Age', 'BMI'"),
):
    case(
        f"the odd one of three sites {found}",
        f"dataset: 'DATA/{name}.csv' {found}, unlike 2 of 3 tables; expected the same columns in each table",
        sites(odd, name),
    )
JOINED = {"examples": [BY_FILE, "'data/lyon.csv' has the same rows as 'data/bonn.csv'"]} | as_sites(
    "bonn", "lyon", "turin"
)
for name in ("bonn", "turin"):
    case(
        f"decimal commas in {name}",
        JOINED | {"inputs": [f"'{name}.csv' has decimal commas, as in 'bmi'", ENCODED]},
        sites(R, name, sep=";", decimal=","),
    )
case(
    "decimal commas in the label of one site",
    JOINED
    | {
        "inputs": ["'turin.csv' has decimal commas, as in 'bmi'"],
        "left out": ["2 columns that 'columns' does not name: 'sex', 'label'"],
    },
    sites(COMMAS),
    label_column="bmi",
    columns="age",
)
case(
    "a word for missing values in one site",
    "dataset: 'DATA/turin.csv': 'age' holds numbers and '?'; leave missing values empty, or name their "
    "words: missing-values='?'",
    sites(R.assign(age=R.age.astype(object).where(R.age > 25, "?"))),
)
case(
    "words in one site",
    "dataset: 'DATA/turin.csv' holds text in 'age', such as 'old', and 'DATA/bonn.csv' holds numbers; "
    "expected the same kind in each table",
    sites(R.assign(age="old")),
)


def parts(form):
    def write(folder):
        for i in range(4):
            R[10 * i : 10 * i + 10].to_parquet(folder / f"{form.format(i)}.parquet", index=False)

    return write


PARTS = "'part-00000-1f.c000.snappy', 'part-00001-1f.c000.snappy', 'part-00002-1f.c000.snappy', "
PARTS += "'part-00003-1f.c000.snappy'"
case(
    "parts of one table",
    {"examples": [f"4 files are read as parts of one table: {PARTS}", HELD_OUT], "inputs": [ENCODED]},
    parts("part-{:05}-1f.c000.snappy"),
)
case(
    "parts of one table as sites",
    "partition: 'natural:file' is not allowed; expected another partition: by their names 'chunk_0', "
    "'chunk_1', 'chunk_2', 'chunk_3' are parts of one table",
    parts("chunk_{}"),
    partition="natural:file",
)
case(
    "files that are called as sites",
    {"examples": [BY_FILE], "inputs": [ENCODED]} | as_sites("party0", "party1", "party2", "party3"),
    parts("party{}"),
    partition="natural:file",
)
for name, title, file in (
    ("a comma", "Report, of 2024\n", PLAIN),
    ("several lines", "Report of 2024\nMade by hand\n\n", PLAIN),
    ("semicolons", "Report of 2024\n", PLAIN.replace(",", ";")),
):
    case(
        f"a title of {name}",
        USUAL
        | {
            "left out": [
                f"{number_of(title.count(chr(10)), 'line')} above the header of 't.csv' (guessed; header-row "
                "decides)"
            ]
        },
        text(title + file),
    )
case(
    "row names of R without a header",
    "dataset: 'DATA/t.csv' has rows with more fields than its header has names",
    csv(R.rename(index=str), header=["age", "bmi", "sex", "label"], index=True, index_label=False),
)
case(
    "a header with fewer commas than its texts",
    encoded('"name=Doe, J, jr|Roe, K, sr"'),
    text(
        "name;label\n"
        + "Doe, J, jr;a, b, c\nRoe, K, sr;d, e, f\nDoe, J, jr;d, e, f\nRoe, K, sr;a, b, c\n" * 5
    ),
)


def nested(**columns):
    return lambda folder: R.assign(**columns).to_parquet(folder / "t.parquet")


STRUCTS, LISTS = [{"low": 1, "high": 2}] * 40, [["a", "b"], ["a"]] * 20
case("a column of structs", f"columns: 'pair' holds structs; {FLATTEN}", nested(pair=STRUCTS))
case("a column of lists", f"columns: 'pair' holds lists; {FLATTEN}", nested(pair=LISTS))
case(
    "nested columns that are not used",
    {"examples": [HELD_OUT], "left out": ["3 columns that 'columns' does not name: 'sex', 'one', 'other'"]},
    nested(one=STRUCTS, other=LISTS),
    columns="age,bmi",
    missing_values="-9",
)
case("lists as label", f"label-column: 'label' holds lists; {FLATTEN}", nested(label=LISTS))
case(
    "lists as sites",
    f"partition: 'site' holds lists; {FLATTEN}",
    nested(site=LISTS),
    partition="natural:site",
)
SEVERAL = ["No Finding", "Effusion", "Effusion|Mass", "Mass", "Mass|Effusion|Edema", "Edema"]
for sign, keys in ((";", {}), ("|", {"problem": "multi-label"})):
    case(
        f"several labels in a cell, with {sign}{' and problem multi-label' * bool(keys)}",
        f"label-column: 'label' holds several labels in a cell, such as 'Effusion{sign}Mass'; write a column "
        "of 0 and 1 for each label, and name these: label-column=Effusion,Mass with "
        "problem=multi-label",
        csv(R.assign(label=[SEVERAL[i % 6].replace("|", sign) for i in range(40)])),
        **keys,
    )
case(
    "classes for a problem of several labels",
    "problem: 'multi-label' is not allowed; expected one that predicts classes: 'sex' does not hold numbers",
    csv(R),
    label_column="sex",
    problem="multi-label",
)
case(
    "classes as numbers",
    "predict: 'numbers' is not allowed; expected 'classes': 'sex' does not hold numbers",
    csv(R),
    label_column="sex",
    predict="numbers",
)
case(
    "several columns for a problem of classes",
    "problem: 'classification' is not allowed; expected one that predicts numbers with 2 label columns",
    csv(R),
    label_column="age,bmi",
    problem="classification",
)
case(
    "classes with bars in their names",
    USUAL,
    csv(R.assign(label=np.array(["a|b", "c|d"])[np.arange(40) % 2])),
)


def tables(*names):
    """Tables of these names, of which each has other rows."""

    def write(folder):
        for i, name in enumerate(names):
            (folder / name).parent.mkdir(exist_ok=True)
            R.assign(bmi=R.bmi + i).to_csv(folder / name, index=False)

    return write


EACH = (
    "expected 'train' and 'test' as whole names: of two tables, as train.csv and test.csv, or of two folders"
)
for names, unread, read in (
    (["train.csv", "test.csv", "val.csv"], "the table 'val.csv'", "'train.csv', 'test.csv' are read"),
    (["all.csv", "bonn/a.csv", "lyon/a.csv"], "the tables 'bonn/a.csv', 'lyon/a.csv'", "'all.csv' is read"),
):
    case(
        f"{names[-1]} is not read",
        {"inputs": [ENCODED], "left out": [f"{unread}: {read}"]}
        | ({} if "test.csv" in names else {"examples": [HELD_OUT]}),
        tables(*names),
    )
case("TRAIN.csv and TEST.csv", {"inputs": [ENCODED]}, tables("TRAIN.csv", "TEST.csv"))
for names in (
    ("Train/bonn.csv", "Test/bonn.csv", "Train/lyon.csv"),
    ("bonn/Train.csv", "bonn/TEST.csv", "lyon/train.csv"),
):
    case(f"two sites with {names[1]}", {"inputs": [ENCODED]} | as_sites("bonn", "lyon"), tables(*names))
for names, odd in (
    (["data_train.csv", "data_test.csv"], "data_test.csv"),
    (["all.csv", "validation set.csv"], "validation set.csv"),
    (["Testdaten/a.csv", "Trainingsdaten/a.csv"], "Testdaten/a.csv"),
):
    case(
        f"{odd} is no site",
        f"dataset: of 2 tables of 'DATA' {odd!r} is called as a test set; {EACH} with the tables of sites",
        tables(*names),
    )
case(
    "a folder with one table for each site, who are asked for",
    {"inputs": [ENCODED], "examples": [BY_FILE]} | as_sites("bonn", "lyon"),
    tables("bonn/bonn.csv", "lyon/part-0.csv"),
    partition="natural:file",
    num_clients=2,
)
case(
    "the file of one table as client",
    (
        "partition: 'natural:file' is not allowed; expected another partition: of 'DATA' 'all.csv' is read, "
        "and no tables of sites"
    ),
    tables("all.csv", "bonn/a.csv", "lyon/a.csv"),
    partition="natural:file",
)
case(
    "a site called Testa",
    {"inputs": [ENCODED], "examples": [BY_FILE]} | as_sites("Contest", "Testa"),
    tables("Contest.csv", "Testa.csv"),
)
