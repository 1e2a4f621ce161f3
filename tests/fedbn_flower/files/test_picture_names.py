"""Pictures whose names say that several are of one person."""

import re

import pytest

from fedbn_flower.files.picture_names import of_patients


@pytest.mark.parametrize(
    ("form", "pattern"),
    [
        ("p{i:03}_{k}.png", r"([^/]*\d[^/]*)[_-][^_/-]+$"),
        ("sub-{i:02}_run-{k}.png", r"([^/]*\d[^/]*)[_-][^_/-]+$"),
        ("x/{i:04}-{k}.jpg", r"([^/]*\d[^/]*)[_-][^_/-]+$"),
        ("patient_{i}/{k}.png", "([^/]+)/[^/]+$"),
        ("x/S{i}/{k}.png", "([^/]+)/[^/]+$"),
    ],
)
def test_pictures_that_are_called_as_those_of_patients_are_doubted(form, pattern):
    names = [form.format(i=i, k=k) for i in range(9) for k in range(3)]
    (note,) = of_patients(names)
    assert note.text.startswith("leaks? 27 pictures seem to be of 9 people (")
    assert f"group-column 'name={pattern}'" in note.text
    groups = [re.search(pattern, name)[1] for name in names]
    assert [groups.count(one) for one in {*groups}] == [3] * 9


@pytest.mark.parametrize(
    "form", ["{n}.png", "img_{n:04}.png", "ISIC_{n:07}.jpg", "2021-03-{n:02}.png", "cat/{n}.png"]
)
def test_pictures_with_a_number_each_are_not(form):
    assert not of_patients([form.format(n=n) for n in range(40)])
