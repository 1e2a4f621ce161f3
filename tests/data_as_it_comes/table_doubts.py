"""Columns that are hardly meant as inputs: ids, dates, stand-ins for missing values, columns without use."""

import numpy as np
import pandas as pd

from .table_case import AS_CLASSES, USUAL, WITHOUT_LABEL, Cases, R, csv, encoded

CASES = Cases()
case = CASES.add


IDS = "age,bmi,sex=f|m,case,name=" + "|".join(f"p{i:02}" for i in range(40))
DAYS = [int(f"{day:%Y%m%d}") for day in pd.date_range("2024-01-01", periods=40)]
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
case(
    "ids, as numbers and as words",
    USUAL
    | {
        "inputs": [f"categories are one-hot encoded in the order of {IDS!r}"],
        "doubts?": [
            "columns: ids? 'case', 'name' each have a value of their own in (nearly) each training row, as a "
            "row number or an id has; name the columns to use without them"
        ],
    },
    csv(R.assign(case=np.random.default_rng(1).permutation(40), name=[f"p{i:02}" for i in range(40)])),
)
case(
    "dates as numbers",
    encoded("age,bmi,sex=f|m,day,seen")
    | {
        "doubts?": [
            "columns: dates? 'day' (such as 20240101), 'seen' (Unix seconds from 2024-01-01 on) are read "
            "as numbers; write days or years since a date that matters, or name the columns to use without "
            "them"
        ]
    },
    csv(R.assign(day=DAYS, seen=1_704_067_200 + np.arange(40) ** 3 * 1000)),
)


def as_text(texts, name="t"):
    column = np.array(texts)[np.arange(40) % len(texts)]
    return lambda folder: R.assign(**{name: column}).to_parquet(folder / "t.parquet")


NAMED = ("auto", "name the columns to use"), ("age,t", "name its values: t=VALUE|VALUE")
TEXTS = (
    (["1.317,65", "12.450,00"], "numbers", "write decimals with a point, and no separators of thousands"),
    (["01", "02"], "numbers", "save the column as numbers, or WAY"),
    (["1.234.567", "999"], "numbers", "write decimals with a point, and no separators of thousands"),
    (["3/4/21", "31/12/20"], "dates", "write them as numbers, such as days or years, or WAY"),
    (["11.12.2020", "01.02.2021"], "dates", "write them as numbers, such as days or years, or WAY"),
    (["5 Mar 2020", "12-Dec-2021"], "dates", "write them as numbers, such as days or years, or WAY"),
    (["March 5, 2020", "2020-03-05T10:30Z"], "dates", "write them as numbers, such as days or years, or WAY"),
    (["08:30", "17:05:10"], "times", "write them as numbers, such as minutes or hours, or WAY"),
    (["8:30 am", "5:05 pm"], "times", "write them as numbers, such as minutes or hours, or WAY"),
    (["1 100,50", "21 103"], "numbers", "write decimals with a point, and no separators of thousands"),
    (["0%", "12%"], "numbers", "write numbers without a sign of their unit"),
    (["$1,000.00", "$37.50"], "numbers", "write numbers without a sign of their unit"),
    (["45 J", "7 J"], "numbers", "write numbers without their unit, or WAY"),
    (["72 kg", "71.5kg"], "numbers", "write numbers without their unit, or WAY"),
    (["36.5 °C", "37,1°C"], "numbers", "write numbers without their unit, or WAY"),
    (["2.31 l", "1 l"], "numbers", "write numbers without their unit, or WAY"),
    (["50 EUR", "1.250 EUR"], "numbers", "write numbers without their unit, or WAY"),
    (["5 mg/dl", "70 mmol/l"], "numbers", "write numbers without their unit, or WAY"),
    (["1.1.23", "31.12.22"], "dates", "write them as numbers, such as days or years, or WAY"),
    (["110/80", "95/60"], "pairs of numbers", "write a column for each of the two numbers, or WAY"),
    (["−3", "−4"], "numbers", "write the minus as '-'"),  # noqa: RUF001
)
for i, (texts, what, hint) in enumerate(TEXTS):
    columns, way = NAMED[i % 2]
    case(
        f"{texts[0]}, {columns}",
        f"columns: 't' holds {what} as text, such as {min(texts)!r}; {hint.replace('WAY', way)}",
        as_text(texts),
        columns=columns,
    )
case(
    "times, named with their values",
    encoded("age,t=08:30|17:05") | {"left out": ["2 columns that 'columns' does not name: 'bmi', 'sex'"]},
    as_text(["08:30", "17:05"]),
    columns="age,t=08:30|17:05",
)
case(
    "times as label",
    "label-column: 'label' holds times as text, such as '08:30'; "
    "write them as numbers, such as minutes or hours, or name its classes: label=CLASS|CLASS",
    as_text(["08:30", "17:05"], "label"),
)
case(
    "words with signs of dates and times",
    encoded("age,bmi,sex=f|m,t=1.2.3|10-20|3:1|May"),
    as_text(["10-20", "3:1", "1.2.3", "May"]),
)
for words in (
    ["20A", "20B", "10 a", "10 b"],
    ["1st", "2nd"],
    ["T1", "T2"],
    ["18-30 years", ">30 years"],
    ["1/2", "3/4"],
):
    text = "|".join(sorted(words))
    case(
        f"words with numbers in them: {text}",
        USUAL | {"inputs": [f"categories are one-hot encoded in the order of 'age,bmi,sex=f|m,t={text}'"]},
        as_text(words),
    )
for words, advice in (
    (
        ["<5", ">91", "7", "8.5", "9"],
        "write a number in the place of a limit, such as the limit itself, or leave it empty",
    ),
    (
        ["20A", "0", "10", "30"],
        "if they are codes, name the columns to use, this one as 't=0|10|20A|30'; else MISSING=20A",
    ),
    (["n.d.; ?", "0", "10", "30"], "MISSING='n.d.; ?'"),
    (["n.d.", "?", "0", "10", "30"], "MISSING='?,n.d.'"),
    (["T", "0", "10", "30"], "remove the header where it stands again among the rows"),
):
    missing = "leave missing values empty, or name their words: missing-values"
    first = sorted(set(words) - {"0", "10", "30", "7", "8.5", "9"})[0]
    case(
        f"{words[0]} among numbers",
        f"columns: 't' holds numbers and {first!r}; {advice.replace('MISSING', missing)}",
        as_text(words),
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
for word in ("Summe", "MOYENNE :", "n = 40", "Std. Dev.", "Mittelwert"):
    case(
        f"a row of {word}",
        f"dataset: 'DATA/t.csv': 'age' holds numbers and {word!r}; this looks like a row of totals: remove "
        "it (row 42)",
        csv(pd.concat([R.astype(object), pd.DataFrame([[word, 25.3, None, 1]], columns=list(R))])),
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
case(
    "a row of units in a workbook, with a label",
    (
        "columns: 'age' holds numbers and 'years'; if the first row holds units or the like, remove it; else "
        "leave missing values empty, or name their words: missing-values=years"
    ),
    with_units,
    label_column="sex",
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
for texts in (
    ("3.318", "1", "1.601", "2", "2.007", "4"),
    ("3.318", "850", "1.61", "999", "2.007", "412"),
    ("0.318", "850", "1.601", "999", "2.007", "412"),
    ("3.318", "5", "1.601", "0", "2.007", "2.310"),
    ("3.318", "3.000", "1.600", "1.000", "2.007", "2.310"),
):
    case(f"decimals such as {texts}", encoded("age,bmi,sex=f|m,cost"), costs(*texts))
