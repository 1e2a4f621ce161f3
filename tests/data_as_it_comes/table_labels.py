"""Labels that are no examples; classes and codes in several spellings; and rows that stand twice."""

import numpy as np
import pandas as pd

from .table_case import ENCODED, HELD_OUT, USUAL, Cases, R, csv, lines, text

CASES = Cases()
case = CASES.add


def doubt(line, **rows):
    return USUAL | rows | {"doubts?": [line]}


case(
    "a row of means",
    doubt(
        "predict: classes? 40 of 41 values of 'label' are one of 0, 1, and not 0.475: numbers are learnt, no "
        "classes; if that is a mean or the like, remove the row; else predict=numbers says so"
    ),
    text(lines("49.5,25.1,f,0.475")),
)
case("a row of means, stated to be numbers", USUAL, text(lines("49.5,25.1,f,0.475")), predict="numbers")
SHIFTED = R.assign(label=R.label + (R.sex == "f"))
case(
    "0 and 1 at a site, 1 and 2 at another",
    {
        "examples": ["no test set: a fixed 20 % of the rows of each 'sex' is held out"],
        "doubts?": [
            "label-column: classes? 'label' has the classes 0, 1 at some clients and 1, 2 at others; if "
            "they mean the same, number them alike"
        ],
    },
    csv(SHIFTED),
    partition="natural:sex",
    num_clients=2,
)
case("0 to 2 without sites", USUAL, csv(SHIFTED))
DOUBLE = R.assign(bmi=R.bmi + np.arange(40))
case(
    "each row twice",
    USUAL
    | {
        "examples": [HELD_OUT, "(nearly) each row stands twice or more often: 40 of 80 differ"],
        "doubts?": [
            "dataset: 12 of 16 test examples are training examples, too, inputs and target alike: what is "
            "measured on them is no measure of new examples; they are alike by no chance, since hardly any "
            "more are but for one column: remove what stands twice"
        ],
    },
    csv(pd.concat([DOUBLE, DOUBLE])),
)


case(
    "codes of classes with zeros before them",
    USUAL
    | {
        "target": [
            "'label' holds numbers, of which it reads '007', '07' as 7",
            "the classes 7, 10 are numbered from 0",
        ]
    },
    csv(R.assign(label=np.array(["007", "07", "010"])[np.arange(40) % 3])),
)
case(
    "codes of sites with zeros before them",
    {
        "inputs": [ENCODED],
        "examples": ["no test set: a fixed 20 % of the rows of each 'site' is held out"],
        "clients": ["'site' holds numbers, of which it reads '01', '1' as 1"],
    },
    csv(R.assign(site=np.array(["01", "1", "02"])[np.arange(40) % 3])),
    partition="natural:site",
)
