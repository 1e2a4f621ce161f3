"""Columns that are hardly meant as inputs: ids, dates, stand-ins for missing values, columns without use."""

import numpy as np
import pandas as pd

from .table_case import AS_CLASSES, USUAL, WITHOUT_LABEL, Cases, R, csv, encoded

CASES = Cases()
case = CASES.add


case(
    "columns of one value or none, named",
    encoded(
        "age,site=a|b,unit",
        after=[
            "missing values (unit 40): numbers are filled with their mean, categories are encoded as zeros",
            "with one value in all training rows, which teaches nothing: 'site' (b), 'unit' (none)",
        ],
    )
    | {"left out": ["2 columns that 'columns' does not name: 'bmi', 'sex'"]},
    csv(R.assign(unit=np.nan, site="b")),
    columns="age,site=a|b,unit",
)


def as_text(texts, name="t"):
    column = np.array(texts)[np.arange(40) % len(texts)]
    return lambda folder: R.assign(**{name: column}).to_parquet(folder / "t.parquet")


case(
    "numbers with their unit",
    "columns: 't' holds numbers as text, such as '71.5kg'; write numbers without their unit, or name the "
    "columns to use",
    as_text(["72 kg", "71.5kg"]),
)
case(
    "pairs of numbers in a column that is named",
    "columns: 't' holds pairs of numbers as text, such as '110/80'; write a column for each of the two "
    "numbers, or name its values: t=VALUE|VALUE",
    as_text(["110/80", "95/60"]),
    columns="age,t",
)
case(
    "times as label",
    "label-column: 'label' holds times as text, such as '08:30'; "
    "write them as numbers, such as minutes or hours, or name its classes: label=CLASS|CLASS",
    as_text(["08:30", "17:05"], "label"),
)
TOTALS = [["Total", 1013.5, None, 21], ["Mean", 25.3, None, 0.52]]
WITH_TOTALS = pd.concat([R.astype(object), pd.DataFrame(TOTALS, columns=list(R))])
LOOK_LIKE = "these look like rows of totals: remove them (rows 42, 43)"
for name, write in (
    ("t.csv", csv(WITH_TOTALS)),
    ("t.xlsx", lambda folder: WITH_TOTALS.to_excel(folder / "t.xlsx", index=False)),
):
    case(
        f"totals and means below {name}",
        f"dataset: 'DATA/{name}': 'age' holds numbers and 'Mean', 'Total'; {LOOK_LIKE}",
        write,
    )
case(
    "a row of a mean in French",
    "dataset: 'DATA/t.csv': 'age' holds numbers and 'MOYENNE :'; this looks like a row of totals: remove it "
    "(row 42)",
    csv(pd.concat([R.astype(object), pd.DataFrame([["MOYENNE :", 25.3, None, 1]], columns=list(R))])),
)
case(
    "codes as label",
    (
        "label-column: 'label' holds numbers and '20A'; if they are codes, label-column='label=0|10|20A'; "
        "else leave missing values empty, or name their words: missing-values=20A"
    ),
    as_text(["20A", "0", "10"], "label"),
)


def with_units(folder):
    """A workbook whose second row has the units."""
    units = pd.DataFrame({"age": ["years"], "bmi": ["kg/m2"], "sex": ["f/m"], "label": ["0/1"]})
    pd.concat([units, R.astype(object)]).to_excel(folder / "t.xlsx", index=False)


case(
    "a row of units in a workbook",
    (
        "label-column: 'label' holds numbers and '0/1'; if the first row holds units or the like, remove it; "
        "else leave missing values empty, or name their words: missing-values=0/1"
    ),
    with_units,
)
case(
    "a row of units in a workbook, whose label is missing",
    USUAL | {"left out": [WITHOUT_LABEL], "target": [AS_CLASSES]},
    with_units,
    missing_values="0/1",
)


def costs(*texts):
    """A column of these texts, in turns."""
    return csv(R.assign(cost=np.array(texts)[np.arange(40) % len(texts)]))


for texts, one, other, thousand in (
    (("3.318", "850", "1.601", "999", "2.007", "412"), "3.318", "999", "3318"),
    (("123.500", "850", "401.601", "200", "2.007", "412"), "123.500", "850", "123500"),
):
    case(
        f"{one} beside {other}",
        f"dataset: 'DATA/t.csv': 'cost' holds {one!r} and {other!r}; if points separate thousands, write "
        f"{thousand}, else {other}.000, and so all of its numbers",
        costs(*texts),
    )
DECIMALS = (
    ("3.318", "1", "1.601", "2", "2.007", "4"),
    ("3.318", "850", "1.61", "999", "2.007", "412"),
    ("0.318", "850", "1.601", "999", "2.007", "412"),
    ("3.318", "5", "1.601", "0", "2.007", "2.310"),
    ("3.318", "3.000", "1.600", "1.000", "2.007", "2.310"),
    ("7.318", "5", "8.600", "3", "9.010", "2"),
)
case(
    "decimals",
    encoded("age,bmi,sex=f|m,cost0,cost1,cost2,cost3,cost4,cost5"),
    csv(R.assign(**{f"cost{k}": np.resize(texts, 40) for k, texts in enumerate(DECIMALS)})),
)


case(
    "patients of several rows, left out",
    encoded("age,sex=f|m")
    | {
        "left out": [
            "2 columns that 'columns' does not name: 'bmi', 'patient'",
            "groups? 'patient' has values that several rows share, as those of a patient do: some may be "
            "trained on and others tested on (guessed; group-column decides)",
        ]
    },
    csv(R.assign(patient=[f"p{i // 2}" for i in range(40)])),
    columns="age,sex=f|m",
)
case(
    "patients of several rows, as an input",
    "columns: 'patient' holds 101 distinct values; group-column 'patient' keeps rows of one together; or "
    "name the columns to use, or this one with its values",
    csv(pd.concat([R] * 6).assign(patient=[f"p{i % 101}" for i in range(240)])),
)
