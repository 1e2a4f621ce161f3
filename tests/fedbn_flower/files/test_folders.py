"""Images as they lie: folders of classes, pictures of any mode, saved datasets, NumPy files."""

import errno

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image, Value
from PIL import Image as Picture

from fedbn_flower.core.errors import UserError
from fedbn_flower.core.notes import Note
from fedbn_flower.data import Request, load_dataset
from fedbn_flower.files.held_out import held_out_images
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.results.plotting import plots
from fedbn_flower.results.plotting.plots import class_counts


def grey(value, size=(4, 3)):
    return Picture.new("L", size, value)


def write(folder, pictures):
    """Pictures by their path in the folder."""
    for name, picture in pictures.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        picture.save(folder / name)
    return folder


def ten(folder):
    """Five grey cats and five grey dogs."""
    return write(
        folder, {f"{c}/{i}.png": grey(10 * n + i) for n, c in enumerate(["cat", "dog"]) for i in range(5)}
    )


def test_the_held_out_fifth_is_of_each_class():
    labels = np.repeat([0, 1, 2], [50, 25, 8])
    train, test, output = held_out_images(labels, np.full(83, ""))
    assert sorted([*train, *test]) == list(range(83))
    np.testing.assert_allclose(np.bincount(labels[test]), [10, 5, 1.6], atol=1)
    assert output == Note("examples", "no test split: 16 of 83 images (20 % per class) are held out")
    with pytest.raises(UserError, match="4 images without a test split; expected at least 5"):
        held_out_images(labels[:4], labels[:4])


def test_splits_share_their_classes_and_validation_stands_for_test(load, tmp_path):
    pictures = {"train/b/1.png": grey(1), "train/c/1.png": grey(2), "val/a/1.png": grey(0)}
    data = load(write(tmp_path, pictures))
    assert data.class_names == ("a", "b", "c")
    assert (list(data.train.columns["y"]), list(data.test.columns["y"])) == ([1, 2], [0])
    assert list(data.train.columns["x"][:, 0, 0, 0]) == [1, 2]
    assert data.notes == (Note("examples", "no split 'test': the split 'val' is the test set"),)


def test_what_is_no_picture_and_classes_without_one_are_reported(load, tmp_path):
    ten(tmp_path)
    (tmp_path / "bird").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "cat" / "notes.txt").write_text("a cat")
    grey(0).save(tmp_path / "stray.png")
    data = load(tmp_path)
    assert data.class_names == ("bird", "cat", "dog")
    assert data.spec.classes == 3
    assert set(data.train.columns["y"]) == {1, 2}
    assert data.notes[:2] == (
        Note("left out", "2 files (1 .txt, 1 .png): not pictures in a class folder"),
        Note("target", "no images in the class folders 'bird'"),
    )


def test_pictures_of_every_mode_are_in_colour_and_of_16_bits_if_any_is(load, tmp_path):
    """The first is grey, the third in colour. 16 bits are kept; 8 bits times 257: 255 becomes 65535."""
    palette = Picture.new("P", (2, 1), 1)
    palette.putpalette([0, 0, 0, 9, 8, 7])
    turned = Picture.new("L", (1, 2))
    turned.putdata([1, 2])
    exif = Picture.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    deep = Picture.fromarray(np.array([[514, 65535]], np.uint16))
    write(
        tmp_path,
        {
            "train/a/1.png": grey(7, (2, 1)),
            "train/a/2.tif": deep,
            "train/a/3.png": Picture.new("RGBA", (2, 1), (1, 2, 3, 128)),
            "train/a/4.png": palette,
            "train/a/5.png": Picture.new("LA", (2, 1), (5, 9)),
            "train/a/6.png": Picture.new("1", (2, 1), 1),
            "train/a/7.png": deep,
            "train/a/9.tif": Picture.new("CMYK", (2, 1)),
            "test/a/1.png": grey(3, (2, 1)),
        },
    )
    turned.save(tmp_path / "train" / "a" / "8.png", exif=exif)
    data = load(tmp_path)
    expected = [[7] * 3, [2] * 3, [1, 2, 3], [9, 8, 7], [5] * 3, [255] * 3, [2] * 3, [2] * 3, [255] * 3]
    np.testing.assert_array_equal(data.train.columns["x"][:, :, 0, 0], 257 * np.array(expected))
    assert list(data.train.columns["x"][[1, 6, 7], 0, 0, 1]) == [65535, 65535, 257]
    np.testing.assert_array_equal(data.test.columns["x"][:, :, 0, 0], [[3 * 257] * 3])
    assert [(note.row, note.text) for note in data.notes if note.row == "inputs"] == [
        ("inputs", "7 grey images are converted to three channels, because 3 others are in colour"),
        (
            "inputs",
            "2 images of 16 bits per channel are kept unchanged, divided by 65535: values 514 to 65535",
        ),
        ("inputs", "8 images of 8 bits are scaled to 16 bits (times 257)"),
        ("inputs", "the alpha channel of 2 images is dropped"),
    ]


def test_a_picture_that_cannot_be_used_is_named(load, tmp_path):
    ten(tmp_path)
    whole = (tmp_path / "dog" / "3.png").read_bytes()
    for content, reason in (
        (b"no picture", "is not a valid image"),
        (whole[:45], r"cannot be read as an image \(.+\)"),
    ):
        (tmp_path / "dog" / "3.png").write_bytes(content)
        with pytest.raises(UserError, match=rf"dataset: .*dog/3.png {reason}$") as caught:
            load(tmp_path)
        assert "\n" not in str(caught.value)
    grey(1, (5, 5)).save(tmp_path / "dog" / "3.png")
    with pytest.raises(UserError, match="image-size: 0 is not allowed; .*dog/3.png has 5x5, others 3x4"):
        load(tmp_path)
    assert load(tmp_path, image_size=6).spec.shape == (1, 6, 6)
    Picture.new("F", (4, 3)).save(tmp_path / "dog" / "3.tif")
    with pytest.raises(
        UserError, match="dog/3.tif cannot be read as an image .mode F; expected 8 or 16 bits"
    ):
        load(tmp_path, image_size=6)


def test_the_picture_of_the_partition_has_the_classes_names(configured, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "class_counts", class_counts)
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: drawn.append(figure))
    config = configured(dataset=str(ten(tmp_path)), partition="iid")
    plots.plot_partitions(tmp_path / "partitions.png", inputs_of(config))
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["dog", "cat"]


# ---- through `datasets` -----------------------------------------------------------------------------


def rows(labels, feature=None):
    features = {"img": Image(), "label": feature or Value("int64")}
    pictures = [grey(i) for i in range(len(labels))]
    return Dataset.from_dict({"img": pictures, "label": labels}, features=Features(features))


def test_saved_datasets_are_read_as_they_were_saved(load, tmp_path):
    one = rows([0, 1] * 5, ClassLabel(names=["no", "yes"]))
    one.save_to_disk(tmp_path / "one")
    DatasetDict({"train": one, "test": one.select([3])}).save_to_disk(tmp_path / "both")
    data = load(tmp_path / "one")
    assert (len(data.train), len(data.test), data.class_names) == (8, 2, ("no", "yes"))
    data = load(tmp_path / "both")
    assert list(data.train.columns["x"][:, 0, 0, 0]) == list(range(10))
    assert list(data.test.columns["x"][:, 0, 0, 0]) == [3]
    assert data.notes == ()


def test_names_are_numbered_in_order_and_gaps_are_kept_and_reported(load, tmp_path):
    for name, labels, numbers, names, notes in (
        ("named", ["dog", "cat", "eel"], [1, 0, 2], ("cat", "dog", "eel"), ()),
        (
            "gaps",
            [0, 7, 2],
            [0, 7, 2],
            (),
            (Note("target", "only 3 of the class numbers 0-7 occur; the model has 8 outputs"),),
        ),
    ):
        split = rows(labels, Value("string" if names else "int64"))
        DatasetDict({"train": split, "test": split}).save_to_disk(tmp_path / name)
        data = load(tmp_path / name)
        assert list(data.train.columns["y"]) == numbers
        assert (data.class_names, data.notes) == (names, notes)
        assert data.spec.classes == max(numbers) + 1


def test_a_site_whose_classes_are_numbered_by_what_it_has_needs_all_of_them(configured, tmp_path):
    """Its class 1 might be another site's class 2."""
    folder, cache = str(ten(tmp_path / "site")), str(tmp_path / "cache")
    assert inputs_of(configured(dataset="shape:1x3x4:2"), folder, cache).dataset.spec.classes == 2
    with pytest.raises(UserError, match="data-path: .* all 3 class names: the 2 here are numbered anew"):
        inputs_of(configured(dataset="shape:1x3x4:3"), folder, cache).dataset


def test_a_table_beside_the_pictures_names_their_classes(load, tmp_path):
    """The hub's other layout for pictures, which `datasets` reads; the natural clients are in it too."""
    write(tmp_path, {f"{split}/{i}.png": grey(i) for split in ("train", "test") for i in range(3)})
    for split in ("train", "test"):
        table = "file_name,label,site\n0.png,ill,s1\n1.png,well,s2\n2.png,ill,s1\n"
        (tmp_path / split / "metadata.csv").write_text(table)
    data = load(tmp_path, group_column="site")
    assert (data.class_names, list(data.train.columns["y"])) == (("ill", "well"), [0, 1, 0])
    assert list(data.train.columns["x"][:, 0, 0, 0]) == [0, 1, 2]
    assert list(data.test.groups) == ["s1", "s2", "s1"]
    (tmp_path / "test" / "1.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"row 1 of 'image' \(.*1.png\) is not a valid image"):
        load(tmp_path, group_column="site")


def test_natural_clients_of_data_without_a_test_split_keep_their_ids(load, tmp_path):
    """Row i is of client i modulo 3, as its picture tells."""
    features = Features({"img": Image(), "label": Value("int64"), "who": Value("int64")})
    columns = {"img": [grey(i) for i in range(30)], "label": [i % 2 for i in range(30)]}
    Dataset.from_dict({**columns, "who": [i % 3 for i in range(30)]}, features).save_to_disk(tmp_path)
    data = load(tmp_path, group_column="who")
    assert (len(data.train), len(data.test)) == (24, 6)
    for split in (data.train, data.test):
        assert [int(i) for i in split.groups] == [int(v) % 3 for v in split.columns["x"][:, 0, 0, 0]]


# ---- the cache --------------------------------------------------------------------------------------


def test_a_full_disk_is_one_line_and_leaves_nothing_behind(tmp_path, monkeypatch):
    ten(tmp_path / "data")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(np, "save", full)
        with pytest.raises(UserError, match="cache-dir: cannot write .*No space left on device"):
            load_dataset(Request(str(tmp_path / "data")), tmp_path / "cache")
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]
    assert len(load_dataset(Request(str(tmp_path / "data")), tmp_path / "cache").train) == 8


def test_a_cache_that_is_no_folder_is_reported(tmp_path):
    ten(tmp_path / "data")
    (tmp_path / "cache").write_text("")
    with pytest.raises(UserError, match="cache-dir: cannot (read|write) .*cache"):
        load_dataset(Request(str(tmp_path / "data")), tmp_path / "cache")
