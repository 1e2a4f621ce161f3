"""Folders of sites that hold folders of classes, and pictures whose sites stand in a table beside them."""

import numpy as np
import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.core.notes import Note
from tests.data_as_it_comes.case import put

BOTH = ("hospA/benign", "hospA/malignant", "hospB/benign", "hospB/malignant")


def whose(split):
    """Each picture's folder by its shade, its class and its site."""
    shades = split.columns["x"][:, 0, 0, 0] // 10
    return set(zip(shades.tolist(), split.columns["y"].tolist(), split.groups.tolist(), strict=True))


@pytest.mark.parametrize("splits", [("",), ("train/", "test/")])
def test_folders_of_the_same_names_below_are_sites(load, tmp_path, splits):
    for split in splits:
        put(tmp_path / split, *BOTH)
    data = load(tmp_path, group_column="folder")
    assert data.class_names == ("benign", "malignant")
    expected = {(0, 0, "hospA"), (1, 1, "hospA"), (2, 0, "hospB"), (3, 1, "hospB")}
    assert whose(data.train) == expected
    assert whose(data.test) <= expected
    read = "the folders 'hospA', 'hospB' are read as sites, 'benign', 'malignant' in them as classes"
    assert data.notes[0] == Note("clients", read)
    without = load(tmp_path)
    np.testing.assert_array_equal(without.train.columns["y"], data.train.columns["y"])
    each = f"{read}; partition natural:folder makes a client of each"
    assert without.notes == (Note("clients", each, "the order of the two levels"), *data.notes[1:])


@pytest.mark.parametrize("folders", [("cat", "dog"), ("cat/train", "cat/test", "dog/train", "dog/test")])
def test_sites_without_class_folders_are_refused(load, tmp_path, folders):
    put(tmp_path, *folders)
    with pytest.raises(UserError, match="^partition: 'natural:folder' is not allowed; .* no site folders$"):
        load(tmp_path, group_column="folder")


@pytest.mark.parametrize(
    ("folders", "classes"),
    [
        (("cat/siamese", "cat/persian", "dog/poodle"), {"siamese", "persian", "poodle"}),
        (("cat/images", "dog/images"), {"images"}),
        (("a/train/x", "a/test/x", "b/train/y"), {"x", "y"}),
        (("train/a/x", "train/b/y", "test/a/x"), {"x", "y"}),
        (("a/x/patient_1", "a/y/patient_2", "b/x/patient_3", "c"), {"x", "y"}),
    ],
)
def test_with_natural_folder_the_first_level_is_the_sites_whatever_is_in_it(load, tmp_path, folders, classes):
    data = load(put(tmp_path, *folders), group_column="folder")
    assert set(data.class_names) == classes
    parts = [[part for part in name.split("/") if part not in ("train", "test")] for name in folders]
    whose_class = {(site, label) for site, label, *_ in (part for part in parts if len(part) > 1)}
    found = {
        (site, data.class_names[label])
        for split in (data.train, data.test)
        for site, label in zip(split.groups.tolist(), split.columns["y"].tolist(), strict=True)
    }
    assert found == whose_class


@pytest.mark.parametrize(
    ("folders", "sites"),
    [
        (("a/x", "a/y", "b/y", "b/z", "c/z", "c/x"), ["a", "b", "c"]),  # no site has every class
        ((*BOTH, "docs"), ["hospA", "hospB"]),
        ((*BOTH, "misc/other"), ["hospA", "hospB", "misc"]),
        (("a/x", "a/y", "b/x", "b/y", "c"), ["a", "b"]),  # pictures that no class folder has
        (("A/Benign", "A/Malignant", "B/benign", "B/malignant"), ["A", "B"]),
        (("x/p1", "x/p2", "y/p1", "y/p2"), []),  # patients who have both
        (("x/anna", "x/ben", "x/carl", "y/ben", "y/dora", "y/emil"), []),
        (("a/x", "b/y"), []),
        (("cat/siamese", "cat/persian", "dog/poodle", "dog/boxer"), []),
        (("cat/images", "dog/images"), []),
        (("cat/train", "cat/test", "dog/train", "dog/test"), []),
        (("cat", "dog"), []),
        (("cat/a", "cat/b", "dog/a", "dog/b", "dog"), []),
        (("cat/a", "cat/b"), []),
    ],
)
def test_the_layout_that_explains_most_pictures(load, tmp_path, folders, sites):
    """Folders are sites, or else classes."""
    put(tmp_path, *folders)
    if "docs" in folders:
        for path in (tmp_path / "docs").iterdir():
            path.rename(path.with_suffix(".txt"))
    data = load(tmp_path)
    said = [note.text.partition(" are read as sites, ")[0] for note in data.notes if "as sites" in note.text]
    assert said == ([f"the folders {', '.join(map(repr, sites))}"] if sites else [])
    if not sites:
        assert data.class_names == tuple(sorted({name.split("/")[0] for name in folders}))


def test_another_column_is_refused(load, tmp_path):
    output = "^partition: 'natural:hospital' is not allowed; expected 'natural:folder'$"
    with pytest.raises(UserError, match=output):
        load(put(tmp_path, *BOTH), group_column="hospital")
