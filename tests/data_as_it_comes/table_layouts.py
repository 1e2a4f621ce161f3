"""How tables are written: names, indices, separators, encodings, endings."""

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from fedbn_flower.core.text import number_of

from .table_case import (
    AS_CLASSES,
    ENCODED,
    PLAIN,
    ROW_INDEX,
    USUAL,
    WITHOUT_LABEL,
    Cases,
    R,
    csv,
    encoded,
    lines,
    text,
)

CASES = Cases()
case = CASES.add


case("plain", USUAL, csv(R))
case(
    "row index of rows that were shuffled and dropped",
    USUAL | {"left out": [ROW_INDEX]},
    csv(R.sample(30, random_state=0), index=True),
)
case(
    "row index twice",
    USUAL
    | {
        "left out": [
            ROW_INDEX,
            "'Unnamed: 0.1', a row index: distinct whole numbers without a name (guessed; columns decides)",
        ]
    },
    csv(R.rename_axis("Unnamed: 0").reset_index(), index=True),
)
case(
    "row names of R",
    USUAL | {"left out": ["'Unnamed: 0', a column without a name (guessed; columns decides)"]},
    csv(R.set_axis([f"patient {i}" for i in range(40)]), index=True),
)


def pair(folder):
    R[:30].to_csv(folder / "train.csv")
    R[30:].to_csv(folder / "test.csv", index=False)


case(
    "row index in one of train and test",
    {"left out": ["'Unnamed: 0' of 'train.csv', without a name"], "inputs": [ENCODED]},
    pair,
)


def pq_index(folder):
    R.set_axis(np.arange(40)[::-1]).to_parquet(folder / "t.parquet")


case(
    "parquet, index of its own",
    USUAL | {"left out": ["the index of 't.parquet', which has no name"]},
    pq_index,
)
case(
    "name twice but for blanks",
    "dataset: columns 2 and 4 of 'DATA/t.csv' are both called 'v'; expected different names",
    text("u,v,label, v\n" + "".join(f"{i},{i % 7},{i % 2},{i % 2}\n" for i in range(20))),
)


def pqdup(folder):
    parquet.write_table(pa.table([pa.array([1, 2] * 9)] * 3, names=["a", "label", "a"]), folder / "t.parquet")


case(
    "parquet, name twice",
    "dataset: columns 1 and 3 of 'DATA/t.parquet' are both called 'a'; expected different names",
    pqdup,
)
case(
    "no header",
    (
        "label-column: 'DATA/t.csv' has no column label, labels, target, class, outcome, "
        "y (is its first line a header?); expected one of 71, 24.5, m, 1"
    ),
    text(PLAIN.split("\n", 1)[1]),
)
case(
    "no header, numbers",
    (
        "dataset: columns 4 and 5 of 'DATA/t.csv' are both called '0.2' (is its first "
        "line a header?); expected different names"
    ),
    text("5.1,3.5,1.4,0.2,0.2,0\n4.9,3.0,1.4,0.2,0.3,1\n"),
)
case(
    "comment lines",
    USUAL | {"left out": ["2 lines above the header of 't.csv'"]},
    text("# exported 2024-01-01\n# by a tool, version 3\n" + PLAIN),
)
case("header that begins with a hash", encoded("#age,bmi,sex=f|m"), text("#" + PLAIN))
case("byte order mark", USUAL, text(PLAIN, encoding="utf-8-sig"))
case("utf-16", USUAL, text(PLAIN, encoding="utf-16"))
case("CSV", USUAL, lambda f: R.to_csv(f / "t.CSV", index=False))
case("pq", USUAL, lambda f: R.to_parquet(f / "t.pq"))
case("bars", USUAL, csv(R, sep="|"))
case(
    "xls",
    (
        "dataset: 'DATA/t.xls' is a .xls file, which is not read; expected .csv, .tsv, "
        ".csv.gz, .tsv.gz, .parquet, .pq, .xlsx, or 'scanners', 'digits', a folder with data, or a "
        "hub name"
    ),
    lambda f: (f / "t.xls").write_bytes(b"\xd0\xcf\x11\xe0"),
)
case(
    "quoted line breaks",
    encoded('"age\nin years",bmi,sex=f|m,"note=a\nb|c, d"'),
    csv(
        R.rename(columns={"age": "age\nin years"}).assign(note=np.array(["a\nb", "c, d"])[np.arange(40) % 2])
    ),
)
case("blanks after commas", USUAL, text(PLAIN.replace(",", ", ")))
case("blank lines", USUAL, text(PLAIN.replace("\n", "\n\n", 5)))
case(
    "trailing separators",
    USUAL | {"left out": ["'Unnamed: 4', a column without name and values"]},
    text(PLAIN.replace("\n", ",\n")),
)
case(
    "trailing separators, not in the header",
    USUAL,
    text(PLAIN.split("\n")[0] + "\n" + "\n".join(PLAIN.split("\n")[1:]).replace("\n", ",\n")),
)
case(
    "more fields than names",
    (
        "dataset: 'DATA/t.csv' has 6 fields in line 42, and 4 above; put a value that holds the separator in "
        "quotes, or remove what is no row"
    ),
    text(lines("1,2,f,0,5,6")),
)
case("a row cut off", USUAL | {"left out": [WITHOUT_LABEL], "target": [AS_CLASSES]}, text(lines("33,25.5")))
case(
    "totals at the end",
    USUAL | {"left out": [WITHOUT_LABEL], "target": [AS_CLASSES]},
    text(lines("Total,1024.5,,")),
)
for separator in ";\t":
    case(
        f"a table called .txt, with {separator!r}",
        "dataset: 'DATA/t.txt' holds a table, and its name does not end as a table's; rename it to 't.csv'",
        text(R.to_csv(index=False, sep=separator), "t.txt"),
    )
case(
    "prose called .txt",
    "dataset: 'DATA/t.txt' is not allowed; expected 'text:DATA/t.txt' for a text",
    text("It was, as they say, dark.\nThe rain, it fell.\nNobody came.\n", "t.txt"),
)
case(
    "blanks between the columns, as R writes them",
    (
        "label-column: 'DATA/t.csv' has one column, 'age bmi sex label'; expected names with commas, "
        "semicolons, tabs or bars between them, as R's write.csv has"
    ),
    csv(R, sep=" "),
)
case(
    "text called .xlsx",
    (
        "dataset: 'DATA/t.xlsx' is no workbook; save it as .xlsx in a spreadsheet program, or call it .csv "
        "if it is text"
    ),
    text(PLAIN, "t.xlsx"),
)


def with_a_cover(folder):
    with pd.ExcelWriter(folder / "t.xlsx") as book:
        pd.DataFrame({"Study X": ["2024"]}).to_excel(book, sheet_name="cover", index=False)
        R.to_excel(book, sheet_name="data", index=False)


case(
    "a workbook with a cover",
    (
        "dataset: the first sheet of 'DATA/t.xlsx', 'cover', has at most one column; put the one with the "
        "table first: 'data'"
    ),
    with_a_cover,
)


def below(*above):
    """A workbook with rows above its header."""

    def write(folder):
        padded = [row + [None] * (len(R.columns) - len(row)) for row in above]
        rows = [*padded, list(R), *R.astype(object).to_numpy().tolist()]
        pd.DataFrame(rows).to_excel(folder / "t.xlsx", index=False, header=False)

    return write


for name, above in (
    ("a title and a blank row", [["ICU registry export 2024"], [None]]),
    ("a title of several cells", [["Registry", "Exported 2024-03-01", "by jsmith"]]),
    ("groups of columns", [["Demographics", None, None, "Outcome"]]),
):
    case(
        f"a workbook with {name} above its header",
        USUAL
        | {
            "left out": [
                f"{number_of(len(above), 'line')} above the header of 't.xlsx' (guessed; header-row decides)"
            ]
        },
        below(*above),
    )
case(
    "several labels of words",
    (
        "label-column: 'cough' does not hold numbers, as each of several is to: write 0 and 1 for 'ja' and "
        "'nein'"
    ),
    csv(R.assign(cough=["ja", "nein"] * 20, pain=["ja", "nein", "nein", "ja"] * 10)),
    label_column="cough,pain",
)
