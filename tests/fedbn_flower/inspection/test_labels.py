"""Labels that are no examples, and classes that mean the same; `data_as_it_comes` has whole files."""

import numpy as np
import pytest

from fedbn_flower.inspection.targets import warn_about_labels

from .frames import dataset_of

REMOVE = (
    "in 'label', and each other class has 20 or more; if it is no example, such as a mean, a sum or a "
    "header, remove the row; else name the classes in label-column"
)
LEARNT = (
    "numbers are learnt, no classes; if that is a mean or the like, remove the row; else predict=numbers "
    "says so"
)
SAME = "are different classes of 'label'; if they mean the same, write one word for both"
FEW, WORDS = np.resize([0, 1], 40).tolist(), ["ja", "nein"] * 20


def said_of(labels, stated=False):
    data = dataset_of({"age": np.arange(len(labels)) % 7, "label": labels}, "label")
    return list(warn_about_labels(data, stated))


@pytest.mark.parametrize(
    ("labels", "line"),
    [
        ([*FEW, 19], f"'19' is the class of one row {REMOVE}"),
        ([*WORDS, "Mean"], f"'Mean' is the class of one row {REMOVE}"),
        ([*FEW, 21, 40, 61], f"'21' and '40' and '61' are each the class of one row {REMOVE}"),
        (["Oui", "Non", "O", "N"] * 10, f"'Non' and 'N', 'Oui' and 'O' {SAME}"),
        (["1", "0", "True", "False"] * 10, f"'0' and 'False', '1' and 'True' {SAME}"),
        (["m", "male", "f", "female"] * 10, f"'f' and 'female', 'm' and 'male' {SAME}"),
    ],
)
def test_classes_of_one_row_or_in_two_spellings_are_doubted(labels, line):
    assert said_of(labels) == [f"label-column: classes? {line}"]


def test_numbers_that_are_classes_but_for_a_mean_are_doubted():
    found = "predict: classes? 40 of {} values of 'label' are one of 0, 1, and not {}: " + LEARNT
    assert said_of([*FEW, 0.475]) == [found.format(41, "0.475")]
    assert said_of([*FEW, 0.5, 21, 40]) == [found.format(43, "0.5, 21, 40")]
    assert said_of([*FEW, 0.5, 0.5, 21, 40]) == []


@pytest.mark.parametrize("labels", [[*FEW, 0.475], [*FEW, 19], [*WORDS, "Mean"]])
def test_what_is_stated_is_no_doubt(labels):
    assert said_of(labels, stated=True) == []


@pytest.mark.parametrize(
    "words", ["T1 T1a T2 T2a", "A B AB 0", "N NE S SE", "Yes No Unknown", "0 1 2 3 4 5 6 7 8 9"]
)
def test_other_words_are_classes(words):
    assert said_of(words.split() * 12) == []
