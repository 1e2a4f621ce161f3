"""Columns as text, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbn_flower.core.errors import UserError
from fedbn_flower.data.column_text import Feature, format_columns, joined, split_words

TEXTS = st.text(
    "ab|=\\,\"' \n\r;\0\tB0é\u2028黑😀", min_size=1, max_size=8
)  # of a few kinds: all are slow to draw
FEATURES = st.lists(
    st.tuples(TEXTS, st.lists(TEXTS, unique=True, max_size=4)),
    unique_by=lambda pair: pair[0],
    min_size=1,
    max_size=4,
).map(lambda pairs: [Feature(name, tuple(values)) for name, values in pairs])


@given(FEATURES)
def test_the_text_of_columns_is_read_as_these_columns(features):
    """Whatever the names and values are, beside any other of the names."""
    names = [feature.name for feature in features]
    assert [
        Feature.parse(word, names, "columns") for word in split_words(format_columns(features))
    ] == features


@given(st.lists(TEXTS, min_size=1, max_size=6))
def test_words_are_joined_and_split(words):
    assert split_words(joined(words)) == words


@pytest.mark.parametrize(
    ("text", "names", "name", "values"),
    [
        ("sex=f|m", ["sex"], "sex", ("f", "m")),
        (r"unit=mg\|dl|mmol", ["unit"], "unit", ("mg|dl", "mmol")),
        (r"age>\=65=yes|no", ["age>=65"], "age>=65", ("yes", "no")),
        (r"age>\=65", ["age>=65"], "age>=65", ()),
        ("age>=65", ["age>=65"], "age>=65", ()),
        ("age>=65", ["age>", "age>=65"], "age>", ("65",)),
        (r"path=C:\new|C:\\", ["path"], "path", (r"C:\new", "C:\\")),
        (" sex=f", ["sex"], "sex", ("f",)),
        ("a=b", ["a=b"], "a=b", ()),
        ("grade=a=b|c", ["grade"], "grade", ("a=b", "c")),
    ],
)
def test_what_a_word_means(text, names, name, values):
    assert Feature.parse(text, names, "columns") == Feature(name, values)


@pytest.mark.parametrize("text", [r"age\=65", "height", "height=1|2"])
def test_an_unknown_name_is_told_as_it_is_meant(text):
    with pytest.raises(UserError, match="columns: unknown name '(age=65|height)'"):
        Feature.parse(text, ["age"], "columns")
