"""Pictures with a table of their labels, as chest X-rays lie: one folder, one CSV file, several findings."""

import csv

import numpy as np
import pytest
from PIL import Image

from fedbn_flower.core.errors import UserError
from fedbn_flower.core.notes import Note
from fedbn_flower.core.process_cache import clear_process_caches
from fedbn_flower.data import Request, load_dataset
from fedbn_flower.files.labelled_images import Pictures
from fedbn_flower.files.walk import walk

HEADER = ["site", "picture", "nodule", "effusion"]
FINDINGS = "nodule,effusion"


def write(folder, rows, header=HEADER, name="findings.csv"):
    with (folder / name).open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def draw(folder, names):
    """Grey pictures, the n-th of the value n."""
    for value, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 3), value).save(folder / name)


@pytest.fixture
def folder(tmp_path):
    """Twenty pictures; the n-th of the value n has a nodule if n is odd, an effusion if n // 2 is."""
    folder = tmp_path / "data"
    draw(folder, [f"images/{n:02}.png" for n in range(20)])
    write(folder, [["ab"[n % 2], f"{n:02}.png", n % 2, n // 2 % 2] for n in reversed(range(20))])
    return folder


@pytest.fixture
def load(folder, cache_dir):
    def loaded(**options):
        clear_process_caches()
        return load_dataset(Request(str(folder), **{"label_column": FINDINGS} | options), cache_dir)

    return loaded


def test_several_findings_of_each_picture(load):
    data = load(group_column="site")
    assert data.spec.as_dataset() == "shape:1x3x4:2:numbers"
    assert data.class_names == ("nodule", "effusion")
    assert (len(data.train), len(data.test)) == (16, 4)
    for split in (data.train, data.test):
        value = split.columns["x"][:, 0, 0, 0].astype(int)
        assert split.columns["y"].tolist() == np.stack([value % 2, value // 2 % 2], axis=1).tolist()
        assert split.groups.tolist() == ["ab"[n % 2] for n in value]
    assert sorted(data.test.groups) == ["a", "a", "b", "b"]
    assert len(np.unique(data.test.columns["y"], axis=0)) == 4


def test_the_held_out_fifth_has_every_combination_of_findings(load, folder):
    """Of five, ten, five and twenty pictures 1, 2, 1 and 4."""
    counts = {(0, 0): 5, (0, 1): 10, (1, 0): 5, (1, 1): 20}
    labels = [combination for combination, count in counts.items() for _ in range(count)]
    draw(folder, [f"images/{n:02}.png" for n in range(40)])
    write(folder, [["a", f"{n:02}.png", *labels[n]] for n in range(40)])
    found, held_out = np.unique(load().test.columns["y"], axis=0, return_counts=True)
    assert dict(zip(map(tuple, found.tolist()), held_out.tolist(), strict=True)) == {
        combination: count // 5 for combination, count in counts.items()
    }


def test_what_has_no_label_or_no_row_is_left_out_and_said(load, folder):
    write(folder, [["a", f"{n:02}.png", n % 2, "" if n == 3 else 1] for n in range(18)])
    data = load()
    assert len(data.train) + len(data.test) == 17
    assert Note("left out", "1 row without a value in 'nodule' or 'effusion'") in data.notes
    assert Note("left out", "3 pictures without a label in 'findings.csv'") in data.notes


def test_a_path_tells_pictures_of_one_name_apart(load, folder):
    draw(folder, ["old/00.png"])
    with pytest.raises(UserError, match="^image-column: 'picture' holds '00.png', and several pictures have"):
        load()
    write(folder, [["a", f"images/{n:02}.png", n % 2, 1] for n in range(20)])
    assert len(load().train) == 16


def test_a_picture_of_that_very_path_is_meant(load, folder):
    """The one at the top, of the value 99, and not the one of the same name below, of 0."""
    Image.new("L", (4, 3), 99).save(folder / "00.png")
    others = [["a", f"images/{n:02}.png", n % 2, 1] for n in range(1, 9)]
    write(folder, [["a", "00.png", 0, 1], *others])
    data = load()
    x = [split.columns["x"][:, 0, 0, 0].tolist() for split in (data.train, data.test)]
    assert sorted(x[0] + x[1]) == [*range(1, 9), 99]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("images/00.png", ["images/00.png"]),
        ("/home/anna/data/images/00.png", ["images/00.png"]),
        ("C:\\data\\images\\00.png", ["images/00.png"]),
        ("./images/00", ["images/00.png"]),
        (0, ["images/00.png", "old/00.png"]),
        (0.0, ["images/00.png", "old/00.png"]),
        ("IMAGES/00.png", []),
        ("images/00.PNG", ["images/00.png"]),
        ("other/00.png", []),
        ("00.jpg", []),
        ("", []),
    ],
)
def test_what_a_table_calls_a_picture(folder, value, found):
    draw(folder, ["old/00.png"])
    places = Pictures(walk(folder)).find(value)
    assert [path.relative_to(folder).as_posix() for path in places] == found


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("scanner", "partition: unknown name 'scanner'; expected one of effusion, nodule, pic"),
        ("nodule", "partition: 'natural:nodule' .* another column: this is the label-col"),
    ],
)
def test_columns_that_are_no_sites(load, column, message):
    with pytest.raises(UserError, match=f"^{message}"):
        load(group_column=column)
