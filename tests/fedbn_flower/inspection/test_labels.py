"""Labels that are no examples, and classes that mean the same; `data_as_it_comes` has whole files."""

from dataclasses import replace

import numpy as np
import pytest

from fedbn_flower.config.named_algorithms import NOT_GIVEN
from fedbn_flower.inspection.inputs import warn_about_columns
from fedbn_flower.inspection.targets import warn_about_labels
from fedbn_flower.inspection.warnings import warn_about_data
from fedbn_flower.job.inputs import inputs_of

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


def said_of(labels, stated=False, missing_values=NOT_GIVEN, sites=None):
    data = dataset_of({"age": np.arange(len(labels)) % 7, "label": labels}, "label")
    data = replace(data, train=replace(data.train, groups=sites))
    return list(warn_about_labels(data, stated, missing_values))


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


@pytest.mark.parametrize(("labels", "code"), [([0, 1, 9], "9"), ([1, 2, 99], "99"), ([-9, 0, 1], "-9")])
def test_a_code_for_unknown_beside_two_classes_is_doubted(labels, code):
    (line,) = said_of(labels * 20, missing_values="NA")
    assert line.startswith(
        f"label-column: classes? {code!r} is a class of 'label' beside two others, as a code "
    )
    assert said_of(labels * 20, stated=True, missing_values="NA") == []


@pytest.mark.parametrize("labels", [[0, 1, 9], [1, 2, 99], [-9, 0, 1]])
def test_a_code_for_unknown_is_doubted_once(labels):
    """By its distance from all others, or beside two classes."""
    data = dataset_of({"age": np.arange(60) % 7, "label": labels * 20}, "label")
    (line,) = [*warn_about_columns(data), *warn_about_labels(data)]
    assert ("missing?" in line) == (labels != [0, 1, 9])


@pytest.mark.parametrize("rows", [(4, 12, 12, 12), (10, 10, 10, 10)])
def test_ranks_of_which_sites_have_two_each_are_no_other_numbering(rows):
    ranks = zip([(1, 2), (2, 3), (2,), (2, 3)], rows, strict=True)
    labels = [rank for some, count in ranks for rank in np.resize(some, count).tolist()]
    assert said_of(labels, sites=np.repeat(["bern", "graz", "lyon", "ulm"], rows)) == []


def test_ranks_of_a_small_site_are_no_other_numbering():
    assert said_of([1, 2] * 2 + [2, 3] * 18, sites=np.repeat(["bern", "ulm"], [4, 36])) == []


def test_sites_with_one_class_each_have_none_the_other_way_round():
    sites = np.repeat(["bern", "graz", "ulm"], 20)
    assert said_of([0] * 40 + [1] * 20, sites=sites) == []


def test_a_site_without_events_hides_no_other_numbering():
    data = dataset_of({"age": np.arange(50) % 7, "label": [0, 1] * 10 + [1, 2] * 10 + [0] * 10}, "label")
    sites = np.repeat(["lyon", "turin", "graz"], [20, 20, 10])
    (line,) = warn_about_labels(replace(data, train=replace(data.train, groups=sites)))
    assert "'label' has the classes 0, 1 at some clients and 1, 2 at others" in line


@pytest.mark.parametrize(("ill", "doubted"), [((2, 4, 18), True), ((18, 16, 1), True), ((2, 4, 12), False)])
def test_a_site_whose_classes_are_the_other_way_round_is_doubted(ill, doubted):
    """Of 20 rows at each of three sites so many are 1."""
    data = dataset_of(
        {"age": np.arange(60) % 7, "label": [int(i < n) for n in ill for i in range(20)]}, "label"
    )
    sites = np.repeat(["bern", "graz", "ulm"], 20)
    said = [*warn_about_labels(replace(data, train=replace(data.train, groups=sites)))]
    word, most, others = ("1", "90%", "20%") if ill[2] == 18 else ("0", "95%", "20%")
    line = f"label-column: classes? {most} are {word!r} at ulm, and at most {others} at others; if they are "
    assert said == ([f"{line}the other way round there, write them as elsewhere"] if doubted else [])


def test_sites_in_two_spellings_are_doubted(configured, tmp_path):
    """Left out in turn, each would be trained on under its other name."""
    rows = [f"{i % 7},{i % 2},{['Lyon', 'lyon ', 'Turin'][i % 3]}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["age,ill,site", *rows]))
    keys = {"label_column": "ill", "partition": "natural:site", "num_clients": 3}
    said = [*warn_about_data(inputs_of(configured(dataset=str(tmp_path / "t.csv"), **keys)))]
    (line,) = [line for line in said if "sites?" in line]
    assert line.startswith("partition: sites? 'Lyon' and 'lyon ' differ only in case or blanks; ")


def test_numbers_that_are_classes_but_for_a_mean_are_doubted():
    found = "predict: classes? 40 of {} values of 'label' are one of 0, 1, and not {}: " + LEARNT
    assert said_of([*FEW, 0.475]) == [found.format(41, "0.475")]
    assert said_of([*FEW, 0.5, 21, 40]) == [found.format(43, "0.5, 21, 40")]
    assert said_of([*FEW, 0.5, 0.5, 21, 40]) == []


@pytest.mark.parametrize("labels", [[*FEW, 0.475], [*FEW, 19], [*WORDS, "Mean"]])
def test_what_is_stated_is_no_doubt(labels):
    assert said_of(labels, stated=True) == []


@pytest.mark.parametrize(
    "words",
    ["T1 T1a T2 T2a", "A B AB 0", "N NE S SE", "Yes No Unknown", "0 1 2 3 4 5 6 7 8 9", "7 8 9", "0 9"],
)
def test_other_words_are_classes(words):
    assert said_of(words.split() * 12) == []
