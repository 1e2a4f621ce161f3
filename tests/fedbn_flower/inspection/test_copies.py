"""Test examples that are training examples, too."""

import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn import datasets

from fedbn_flower.cli import main
from fedbn_flower.core.process_cache import clear_process_caches
from fedbn_flower.data import Request, load_dataset
from fedbn_flower.data.dataset import Split
from fedbn_flower.data.readers.arrays import PARTS, keep_arrays
from fedbn_flower.inspection.copies import (
    warn_about_contradictions,
    warn_about_copies,
    warn_about_near_copies,
    warn_about_same_clients,
)

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(80, 3)), RNG.integers(0, 2, 80)
PICTURES = RNG.integers(0, 256, (80, 4, 4), dtype=np.uint8)


@pytest.fixture
def of_arrays(cache_dir):
    def found(*arrays):
        name = keep_arrays(cache_dir, dict(zip(PARTS, arrays, strict=True)))
        return list(warn_about_copies(load_dataset(Request(name), cache_dir)))

    return found


@pytest.mark.parametrize(
    ("x", "copies"), [*((X, copies) for copies in (0, 1, 2, 3, 20)), (PICTURES, 20), (PICTURES / 255, 20)]
)
def test_rows_that_stand_in_both_are_counted(of_arrays, x, copies):
    """Of 20 tests 0.16 are expected to be copies: two are in 1 of 90 pairs of sets, one in 1 of 7."""
    tests = np.append(np.arange(copies), np.arange(60 + copies, 80))
    found = of_arrays(x[:60], Y[:60], x[tests], Y[tests])
    if copies < 3:
        assert not found
        return
    assert found == [
        f"dataset: {copies} of 20 test examples are training examples, too, inputs and target alike: what is "
        "measured on them is no measure of new examples; leave them out of one of the two"
    ]


def test_equal_inputs_with_another_target_are_no_copies(of_arrays):
    assert of_arrays(X, Y, X[:20], Y[:20])
    assert not of_arrays(X, Y, X[:20], 1 - Y[:20])


def test_rows_of_few_values_are_copies_by_chance(of_arrays):
    few = RNG.integers(0, 3, (300, 2)).astype(float)
    assert not of_arrays(few[:200], few[:200, 0].astype(int), few[200:], few[200:, 0].astype(int))


def test_masks_and_tables_are_looked_at(of_arrays, cache_dir, tmp_path):
    masks = RNG.integers(0, 2, (80, 4, 4), dtype=np.uint8)
    assert of_arrays(PICTURES[:60], masks[:60], PICTURES[:20], masks[:20])
    frame = pd.DataFrame({"a": X[:, 0], "b": np.where(Y, "u", "v"), "label": Y})
    frame[:60].to_csv(tmp_path / "train.csv", index=False)
    frame[50:].to_csv(tmp_path / "test.csv", index=False)
    (found,) = warn_about_copies(load_dataset(Request(str(tmp_path)), cache_dir))
    assert found.startswith("dataset: 10 of 30 test examples")


def test_a_fifth_that_is_held_out_has_its_share(cache_dir, tmp_path):
    """Iris has a flower twice; and a table each of whose rows stands twice."""
    flowers = datasets.load_iris(as_frame=True).frame
    for name, frame in (("once", flowers), ("twice", pd.concat([flowers] * 2))):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        assert not list(warn_about_copies(load_dataset(Request(str(tmp_path / f"{name}.csv")), cache_dir)))


ANSWERS = RNG.integers(0, 8, (5000, 5))
FOLLOWING = {
    "answers as 0/1 columns": np.eye(8, dtype=int)[ANSWERS].reshape(5000, -1),
    "four numbers and their total": np.column_stack([ANSWERS, ANSWERS.sum(1)]),
}


@pytest.mark.parametrize("name", FOLLOWING)
def test_rows_are_alike_by_chance_where_a_column_follows_from_others(cache_dir, tmp_path, name):
    """Of 8 ** 5 possible rows 4000 are trained on, as an eighth of those to test on is: by chance."""
    frame = pd.DataFrame(FOLLOWING[name]).add_prefix("q")
    frame["label"] = (ANSWERS @ np.array([3, -2, 5, -4, 0]) > 7).astype(int)
    for part, rows in (("train", frame[:4000]), ("test", frame[4000:])):
        rows.to_csv(tmp_path / f"{part}.csv", index=False)
    data = load_dataset(Request(str(tmp_path)), cache_dir)
    assert len({*map(tuple, frame[:4000].to_numpy())} & {*map(tuple, frame[4000:].to_numpy())}) > 20
    assert not list(warn_about_copies(data))


CHANCE = {
    "wards": lambda n: {"ward": n % 90, "floor": n % 90 // 10, "label": n % 90 % 2},
    "rare symptoms": lambda n: {**{f"s{i}": RNG.poisson(0.02, len(n)) for i in range(40)}, "label": n % 2},
    "vital signs": lambda n: {"t": RNG.normal(37, 0.4, len(n)).round(1), "hr": n % 61, "label": n % 3 % 2},
}


@pytest.mark.parametrize("name", CHANCE)
def test_patients_who_are_at_two_sites_are_copies_and_not_those_alike_by_chance(cache_dir, tmp_path, name):
    """150 rows have a twin; a fifth of them is held out, and of these twins four fifths are not: 24."""
    n = np.arange(600)
    chance = pd.DataFrame(CHANCE[name](n)).sample(frac=1, random_state=0)
    copied = pd.DataFrame(RNG.normal(size=(600, 3)).round(2), columns=["a", "b", "c"])
    copied = pd.concat([copied, copied[:75]]).assign(label=lambda rows: (rows.c > 1) * 1)
    for frame, expected in ((chance, 0), (copied, 1)):
        frame.to_csv(tmp_path / f"{expected}.csv", index=False)
        found = list(warn_about_copies(load_dataset(Request(str(tmp_path / f"{expected}.csv")), cache_dir)))
        assert len(found) == expected
    count = int(found[0].split()[1])
    assert 12 <= count <= 36
    assert found[0].endswith("remove what stands twice")


def test_pictures_that_stand_twice_in_a_folder_are_copies_on_both_sides(cache_dir, tmp_path):
    """No picture is drawn twice by chance, as a table's row is; but black ones are alike."""
    for i, pixels in enumerate([*PICTURES[:40], *PICTURES[:40], *np.zeros_like(PICTURES[:40])]):
        for folder in ("once", "twice")[i in range(40, 80) :]:
            path = tmp_path / folder / "ab"[i % 2] / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    assert not list(warn_about_copies(load_dataset(Request(str(tmp_path / "once")), cache_dir)))
    data = load_dataset(Request(str(tmp_path / "twice")), cache_dir)
    known = {row.tobytes() for row in data.train.columns["x"] if row.any()}
    copies = sum(row.tobytes() in known for row in data.test.columns["x"])
    (line,) = warn_about_copies(data)
    assert line.startswith(f"dataset: {copies} of 24 test examples are training examples, too")


@pytest.mark.parametrize(("copied", "said"), [(0, 0), (1, 0), (2, 2), (6, 6)])
def test_pictures_that_stand_in_two_classes_are_counted(cache_dir, tmp_path, copied, said):
    """As a table's whose rows disagree; a black one may be of any class."""
    of_class = {
        "a": [*PICTURES[:40], np.zeros_like(PICTURES[0])],
        "b": [*PICTURES[40:], *PICTURES[:copied], np.zeros_like(PICTURES[0])],
    }
    for name, pictures in of_class.items():
        (tmp_path / name).mkdir()
        for i, pixels in enumerate(pictures):
            Image.fromarray(pixels).save(tmp_path / name / f"{i}.png")
    found = list(warn_about_contradictions(load_dataset(Request(str(tmp_path)), cache_dir)))
    words = "dataset: labels? {} pictures stand in several classes, the same to the pixel"
    assert found == [words.format(said)] * bool(said)


def test_blank_tiles_of_a_colour_are_no_copies_and_in_no_wrong_class(cache_dir):
    x = RNG.integers(0, 256, (80, 3, 4, 4), dtype=np.uint8)
    x[::4] = np.array([243, 240, 242], np.uint8)[:, None, None]
    y = np.arange(80) // 4 % 2
    name = keep_arrays(cache_dir, dict(zip(PARTS, (x[:60], y[:60], x[60:], y[60:]), strict=True)))
    data = load_dataset(Request(name), cache_dir)
    assert not list(warn_about_copies(data))
    assert not list(warn_about_contradictions(data))


def test_pictures_in_folds_are_compared_without_a_copy_of_all(cache_dir, tmp_path, monkeypatch):
    for i, pixels in enumerate(np.concatenate([PICTURES[:40], PICTURES[30:40]])):
        path = tmp_path / "ab"[i % 2] / f"{i:02}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(path)
    data = load_dataset(Request(str(tmp_path)), cache_dir)
    every = data.train.and_then(data.test)
    monkeypatch.setattr(Split, "at", lambda *_: pytest.fail("a copy"))
    rows = {row.tobytes(): i for i, row in enumerate(every.columns["x"])}
    second = np.array(sorted(rows[pixels.tobytes()] for pixels in PICTURES[30:40]))
    (line,) = warn_about_copies(replace(data, train=every, test=every), second)
    assert line.startswith("dataset: 10 of 10 test examples are training examples, too")


def test_many_bytes_are_not_looked_at(of_arrays, monkeypatch):
    monkeypatch.setattr("fedbn_flower.inspection.copies.BYTES", 100)
    assert not of_arrays(X, Y, X, Y)


@pytest.mark.parametrize(
    ("dtype", "block"),
    [(np.uint8, 1), (np.uint8, 2**22), (np.uint16, 20), (np.float32, 1), (np.float32, 2**22)],
)
def test_copies_are_those_whose_bytes_are_equal(of_arrays, monkeypatch, dtype, block):
    """Whatever is hashed together; rows differ in one value, or in signs only."""
    monkeypatch.setattr("fedbn_flower.inspection.copies.BLOCK", block)
    x = np.zeros((60, 7, 3), dtype)
    x[np.arange(60), np.arange(60) % 7, np.arange(60) // 7 % 3] = 1 + np.arange(60) // 21
    if dtype == np.float32:
        x[1::2, :, :2] *= -1
    elif dtype == np.uint16:
        x = x.reshape(60, -1)
    y = np.arange(60) % 2
    tests = np.append(np.arange(7), np.arange(40, 60))
    known = {row.tobytes() for row in x[:40]}
    same = sum(row.tobytes() in known for row in x[tests])
    (found,) = of_arrays(x[:40], y[:40], x[tests], y[tests])
    assert found.startswith(f"dataset: {same} of 27 test examples")
    assert same < 27


# ---- clients ----------------------------------------------------------------------------------------


def said_of(folder, cache_dir, column):
    clear_process_caches()
    return list(warn_about_same_clients(load_dataset(Request(str(folder), group_column=column), cache_dir)))


def test_a_folder_of_pictures_that_was_copied_is_named(cache_dir, tmp_path):
    """Though it has one picture less, and others have none of its pictures."""
    for s, site in enumerate(("lyon", "oslo")):
        for i, pixels in enumerate(PICTURES[40 * s : 40 * s + 40]):
            path = tmp_path / site / "ab"[i % 2] / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    assert not said_of(tmp_path, cache_dir, "folder")
    shutil.copytree(tmp_path / "lyon", tmp_path / "lyon (Kopie)")
    (tmp_path / "lyon (Kopie)" / "a" / "0.png").unlink()
    assert said_of(tmp_path, cache_dir, "folder") == [
        "partition: copies? the clients 'lyon' and 'lyon (Kopie)' have the same examples, 39 of 39: if one "
        "is a copy of the other, leave it out"
    ]


def sites(tmp_path, cache_dir, **of_site):
    frames = [
        pd.DataFrame({"a": x, "label": np.arange(len(x)) % 2, "site": name}) for name, x in of_site.items()
    ]
    pd.concat(frames).to_csv(tmp_path / "sites.csv", index=False)
    return said_of(tmp_path / "sites.csv", cache_dir, "site")


def test_clients_that_share_by_chance_or_in_part_are_not_named(cache_dir, tmp_path):
    first, other = RNG.normal(size=(2, 40))
    assert len(sites(tmp_path, cache_dir, a=first, b=first)) == 1
    assert not sites(tmp_path, cache_dir, a=first, b=np.append(first[:30], other[:10]))
    assert not sites(tmp_path, cache_dir, a=first[:9], b=first[:9])  # few
    assert not sites(tmp_path, cache_dir, a=first, b=np.append(first, RNG.normal(size=50)))  # a part
    few = RNG.integers(0, 4, 80)
    assert not sites(tmp_path, cache_dir, a=few[:40], b=few[40:])


def test_all_pairs_count(cache_dir, tmp_path):
    x = RNG.normal(size=20)
    (line,) = sites(tmp_path, cache_dir, a=x, b=x, c=x)
    assert "the clients 'a' and 'b' have the same examples, 20 of 20; so do 2 other pairs: if" in line


# ---- near copies, which inspect looks for -----------------------------------------------------------


def near(cache_dir, *arrays):
    data = load_dataset(Request(keep_arrays(cache_dir, dict(zip(PARTS, arrays, strict=True)))), cache_dir)
    return list(warn_about_near_copies(data, np.arange(len(data.train)), np.arange(len(data.test))))


def smooth(count, rng):
    """Pictures of 32 x 32 of a few soft spots each, uint8."""
    grid = np.stack(np.meshgrid(*[np.arange(32)] * 2), -1)
    spots = rng.uniform(0, 32, (count, 4, 1, 1, 2))
    light = np.exp(-((grid - spots) ** 2).sum(-1) / 40).sum(1)
    return np.rint(200 * light / light.max((1, 2), keepdims=True)).astype(np.uint8)


def test_pictures_that_are_nearly_others_are_counted(cache_dir):
    """Three are one of the training pictures, brighter, in 90 % of the contrast, with noise, whatever their
    labels; turned by 90 degrees they are others."""
    rng = np.random.default_rng(0)
    pictures, labels = smooth(120, rng), rng.integers(0, 2, 120)
    copies = np.clip(0.9 * pictures[:3] + 20 + rng.normal(0, 2, (3, 32, 32)), 0, 255).astype(np.uint8)
    test = np.concatenate([pictures[100:], copies])
    assert near(cache_dir, pictures[:100], labels[:100], test, labels[:23]) == [
        "dataset: copies? 3 of 23 test pictures are nearly the same as training pictures, whatever their "
        "targets (the first is number 20): are they of one patient, visit or series? group-column keeps "
        "these together"
    ]
    turned = np.concatenate([pictures[100:], np.rot90(copies, axes=(1, 2))])
    assert not near(cache_dir, pictures[:100], labels[:100], turned, labels[:23])
    blank = np.full((5, 32, 32), 7, np.uint8)
    assert not near(cache_dir, blank, labels[:5], blank + 1, labels[:5])


def test_rows_that_are_nearly_others_are_counted_but_not_of_few_values(cache_dir):
    rng = np.random.default_rng(0)
    x, y = np.rint(100 * rng.normal(size=(100, 3))), rng.integers(0, 2, 100)
    test = np.concatenate([x[80:], x[:4] + 1e-3])
    (line,) = near(cache_dir, x[:80], y[:80], test, y[:24])
    assert line.startswith(
        "dataset: copies? 4 of 24 test rows are nearly the same as training rows, whatever"
    )
    assert "of the training rows 0% are like another" in line
    assert not near(cache_dir, x[:80], y[:80], x[80:], y[:20])
    few = rng.integers(0, 3, (100, 2)).astype(float)
    assert not near(cache_dir, few[:80], y[:80], few[80:], y[:20])


def test_inspect_says_what_it_finds(cache_dir, tmp_path, capsys):
    rows = [f"p{i % 20},{i % 20}.{i // 20},{(7 * i) % 13},{i % 2}" for i in range(60)]
    for name, part in (("train", rows[:40]), ("test", rows[40:])):
        (tmp_path / "d").mkdir(exist_ok=True)
        (tmp_path / "d" / f"{name}.csv").write_text("patient,a,b,label\n" + "\n".join(part) + "\n")
    words = (
        f"inspect --dataset {tmp_path / 'd'} --partition iid --group-column patient --cache-dir {cache_dir}"
    )
    assert main([*words.split(), "--to", str(tmp_path / "page")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "leaks? 20 of 20 groups by 'patient' have examples to train on and to test on" in out
    assert "groups: 20 values of 'patient', 20 on both sides" in out
    assert "leaks? 20 of 20 groups" in (tmp_path / "page" / "inspect.html").read_text()
