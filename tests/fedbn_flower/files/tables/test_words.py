"""Which cells are hardly meant as categories, and what is said of them; `data_as_it_comes` has files."""

import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.files.tables.doubts import TOTAL
from fedbn_flower.files.tables.words import check_categories

POINT = "write decimals with a point, and no separators of thousands"
SIGN, UNIT = "write numbers without a sign of their unit", "write numbers without their unit, or WAY"
AS_DAYS = "write them as numbers, such as days or years, or WAY"
AS_HOURS = "write them as numbers, such as minutes or hours, or WAY"
MISSING = "leave missing values empty, or name their words: missing-values"


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        (["1.317,65", "12.450,00"], "numbers", POINT),
        (["1.234.567", "999"], "numbers", POINT),
        (["1 100,50", "21 103"], "numbers", POINT),
        (["01", "02"], "numbers", "save the column as numbers, or WAY"),
        (["3/4/21", "31/12/20"], "dates", AS_DAYS),
        (["01.02.2021", "11.12.2020"], "dates", AS_DAYS),
        (["12-Dec-2021", "5 Mar 2020"], "dates", AS_DAYS),
        (["2020-03-05T10:30Z", "March 5, 2020"], "dates", AS_DAYS),
        (["1.1.23", "31.12.22"], "dates", AS_DAYS),
        (["08:30", "17:05:10"], "times", AS_HOURS),
        (["5:05 pm", "8:30 am"], "times", AS_HOURS),
        (["0%", "12%"], "numbers", SIGN),
        (["$1,000.00", "$37.50"], "numbers", SIGN),
        (["45 J", "7 J"], "numbers", UNIT),
        (["71.5kg", "72 kg"], "numbers", UNIT),
        (["36.5 °C", "37,1°C"], "numbers", UNIT),
        (["1 l", "2.31 l"], "numbers", UNIT),
        (["1.250 EUR", "50 EUR"], "numbers", UNIT),
        (["5 mg/dl", "70 mmol/l"], "numbers", UNIT),
        (["110/80", "95/60"], "pairs of numbers", "write a column for each of the two numbers, or WAY"),
        (["−3", "−4"], "numbers", "write the minus as '-'"),  # noqa: RUF001
        (["10 a", "10 b", "20A", "20B"], "", ""),
        (["1st", "2nd"], "", ""),
        (["T1", "T2"], "", ""),
        (["18-30 years", ">30 years"], "", ""),
        (["1/2", "3/4"], "", ""),
        (["1.2.3", "10-20", "3:1", "May"], "", ""),
    ],
)
def test_numbers_dates_and_times_as_text_are_refused_and_other_words_are_not(words, what, hint):
    if not what:
        check_categories("t", words, "columns", "WAY")
        return
    with pytest.raises(UserError) as caught:
        check_categories("t", words, "columns", "WAY")
    assert str(caught.value) == f"columns: 't' holds {what} as text, such as {words[0]!r}; {hint}"


LIMITS = "write a number in the place of a limit, such as the limit itself, or leave it empty"


@pytest.mark.parametrize(
    ("other", "key", "advice"),
    [
        (["<5", ">91"], "columns", LIMITS),
        (["90+", "89 or older"], "columns", LIMITS),
        (["<0.3", "?"], "columns", f"{LIMITS}; and {MISSING}='?'"),
        (["20A"], "columns", "if they are codes, name the columns to use, this one as 't=1|2|3|20A'; else"),
        (["20A"], "label-column", f"if they are codes, label-column='t=1|2|3|20A'; else {MISSING}=20A"),
        (["n.d.; ?"], "columns", f"{MISSING}='n.d.; ?'"),
        (["?", "n.d."], "columns", f"{MISSING}='?,n.d.'"),
        (["T"], "columns", "remove the header where it stands again among the rows"),
        (["years"], "columns", f"if the first row holds units or the like, remove it; else {MISSING}=years"),
    ],
)  # fmt: skip
def test_words_among_numbers_have_an_advice(other, key, advice):
    with pytest.raises(UserError) as caught:
        check_categories("t", ["1", "2", "3", *other], key, first="years")
    assert str(caught.value).startswith(f"{key}: 't' holds numbers and {other[0]!r}; {advice}")


def test_rows_of_totals_are_known_by_their_word():
    words = ("total", "summe", "mittelwert", "moyenne :", "n = 40", "std. dev.")
    assert all(map(TOTAL.fullmatch, words))
    assert not any(map(TOTAL.fullmatch, ("menu", "sums up", "meaning")))
