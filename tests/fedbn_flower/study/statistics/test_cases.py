"""Tables of held-out cases: their sites side by side, their groups within sites, their classes."""

import numpy as np
import pandas as pd
import pytest

from fedbn_flower.study.statistics.cases import Cases


def frame(**columns):
    return pd.DataFrame({"site": "a", "id": range(4), "target": [0, 1, 0, 1], "score": 0.5, **columns})


def test_a_sites_cases_are_side_by_side_in_their_order():
    cases = Cases.of(frame(site=["b", "a", "b", "a"], score=[1.0, 2.0, 3.0, 4.0]))
    assert cases.sites == ("b", "a")
    assert cases.scores.tolist() == [1, 3, 2, 4]
    assert [site.targets.tolist() for site in cases] == [[0, 0], [1, 1]]
    assert [part.scores.tolist() for part in cases] == [[1, 3], [2, 4]]
    many = pd.DataFrame({"site": [*"ab"] * 50, "id": range(100), "target": 0, "score": np.arange(100.0)})
    assert [part.scores.tolist() for part in Cases.of(many)] == [[*range(0, 100, 2)], [*range(1, 100, 2)]]


def test_a_group_is_of_one_site_and_without_a_name_a_case():
    groups = ["p1", "p1", None, "p1"]
    cases = Cases.of(frame(site=["a", "a", "a", "b"], group=groups))
    assert cases.groups.tolist() == [0, 0, 1, 0]
    assert cases.in_groups.tolist() == [0, 0, 1, 2]
    numbers = Cases.of(frame(group=[7.0, np.nan, np.nan, 7.0]))
    assert numbers.groups.tolist() == [0, 1, 2, 0]
    assert Cases.of(frame()).groups.tolist() == [0, 1, 2, 3]
    assert Cases.of(frame(site=[*"aabb"], group=None)).groups.tolist() == [0, 1, 0, 1]


def test_a_row_without_a_group_is_no_group_of_its_number():
    assert Cases.of(frame(group=["1", None, "1", "x"])).groups.tolist() == [0, 1, 0, 2]


@pytest.mark.parametrize("target", [["cat", "dog", "cat", "dog"], [0, 1, 0, 1]])
def test_a_target_is_a_class_by_name_or_number(target):
    scores = {"score-cat": [0.1, 0.2, 0.3, 0.4], "score-dog": [0.9, 0.8, 0.7, 0.6]}
    cases = Cases.of(frame(target=target, **scores))
    assert cases.targets.tolist() == [0, 1, 0, 1]
    assert cases.scores.tolist()[0] == [0.1, 0.9]


def test_names_that_are_numbers_are_names():
    cases = Cases.of(frame(target=[3, 1, 3, 1], **{"score-3": 0.5, "score-1": 0.5}))
    assert cases.targets.tolist() == [0, 1, 0, 1]


def test_true_and_false_are_classes_and_numbers_stay():
    assert Cases.of(frame(target=[False, True, False, True])).targets.dtype == np.int64
    assert Cases.of(frame(target=[0.5, 1.5, 2.5, 3.5])).targets.tolist() == [0.5, 1.5, 2.5, 3.5]


def test_a_table_without_a_column_and_a_target_without_a_class_are_refused():
    with pytest.raises(ValueError, match="^the table of cases lacks score, site$"):
        Cases.of(pd.DataFrame({"target": [1]}))
    with pytest.raises(ValueError, match="^the table of cases is empty$"):
        Cases.of(frame().iloc[:0])
    with pytest.raises(ValueError, match="^the target 'cow' is none of cat, dog$"):
        Cases.of(frame(target=["cat", "cow", "cat", "cat"], **{"score-cat": 1.0, "score-dog": 0.0}))
