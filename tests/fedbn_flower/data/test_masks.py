"""Masks from folders, files and arrays: what is read, in which order, and what is refused."""

import datasets
import numpy as np
import pytest
from PIL import Image

from fedbn_flower.config.run_config import defaults_for
from fedbn_flower.core.errors import UserError
from fedbn_flower.core.notes import Note
from fedbn_flower.data import partition_dataset
from fedbn_flower.data.readers.arrays import keep_arrays
from fedbn_flower.data.splits import held_out_fifth
from fedbn_flower.job.inputs import inputs_of

from ..circles import circles, write_circles


def write(folder, masks, names="{}.png", mode=None):
    """Images of the shade 10 i beside these masks."""
    for kind in ("images", "masks"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for i, mask in enumerate(masks):
        Image.new("L", mask.shape[::-1], 10 * i).save(folder / "images" / f"{i}.png")
        image = Image.fromarray(mask)
        if mode == "P":
            image.putpalette([200, 0, 0, 0, 200, 0, 0, 0, 200])
        elif mode:
            image = image.convert(mode)
        image.save(folder / "masks" / names.format(i))
    return folder


def some(values=(0, 1, 2), count=6, shape=(5, 4)):
    return np.random.default_rng(0).choice(np.array(values, np.uint8), (count, *shape))


def everything(data):
    """All masks in the order of the shades of their images, which `write` made."""
    x, y = (np.concatenate([split.columns[name] for split in (data.train, data.test)]) for name in "xy")
    assert (x == x[:, :1, :1, :1]).all()
    return y[np.argsort(x[:, 0, 0, 0])]


@pytest.mark.parametrize(("names", "mode"), [("{}.png", None), ("{}_mask.png", "P"), ("{}-Seg.tif", "P")])
def test_each_image_gets_the_mask_of_its_name(load, tmp_path, names, mode):
    masks = some()
    data = load(write(tmp_path, masks, names, mode))
    np.testing.assert_array_equal(everything(data), masks)
    assert (data.spec.shape, data.spec.outputs, data.spec.predicts) == ((1, 5, 4), 3, "masks")
    assert data.train.columns["y"].dtype == np.uint8
    assert data.notes == (Note("examples", "no test split: 1 of 6 images (20 %) are held out"),)
    assert str(data.spec) == "1x5x4 with masks of 3 classes"


@pytest.mark.parametrize(
    ("values", "expected", "classes", "note"),
    [
        ((0, 255), {0: 0, 255: 1}, 2, "target: masks of 0 and 255 have two classes: 255 is class 1"),
        ((255,), {255: 1}, 2, "target: masks of 0 and 255 have two classes: 255 is class 1"),
        ((0, 1, 255), {}, 2, "left out: pixels of value 255 in the masks do not count"),
        (
            (0, 3),
            {},
            4,
            "target: only 2 of the class numbers 0-3 occur in the masks; the model has 4 outputs",
        ),
        ((0, 1), {}, 2, None),
    ],
)
def test_what_the_values_mean(load, tmp_path, values, expected, classes, note):
    masks = some(values)
    data = load(write(tmp_path, masks))
    of_value = np.arange(256)
    of_value[list(expected)] = list(expected.values())
    np.testing.assert_array_equal(everything(data), of_value[masks])
    assert data.spec.outputs == classes
    assert list(map(str, data.notes[1:])) == ([note] if note else [])


@pytest.mark.parametrize(("files", "doubted"), [(5, True), (3, True), (2, False), (1, False)])
def test_255_beside_0_alone_is_doubted_as_void(load, tmp_path, files, doubted):
    """Some files write 0 and 255 for what others write 0 and 1; beside a class 255 is void."""
    masks = np.tile(np.array([[0, 1], [1, 0]], np.uint8), (6, 1, 1))
    masks[:files] *= 255
    masks[files : files + 3, 0, 0] = 255
    (note,) = load(write(tmp_path, masks)).notes[1:]
    having = min(6, files + 3)
    doubt = f"; masks? {files} of {having} that have it have no class but 0: is it one there?"
    assert note == Note("left out", f"pixels of value 255 in the masks do not count{doubt * doubted}")


def test_masks_of_one_bit_in_colour_of_grey_and_with_alpha_are_grey_ones(load, tmp_path):
    masks = some((0, 255))
    for mode in ("1", "RGB", "RGBA", "LA"):
        data = load(write(tmp_path / mode, masks, mode=mode))
        np.testing.assert_array_equal(everything(data), masks == 255)


def test_blurred_masks_of_jpeg_have_two_classes(load, tmp_path):
    masks = np.zeros((6, 16, 16), np.uint8)
    masks[:, 3:9, 5:12] = 255
    data = load(write(tmp_path, masks, "{}.jpg"))
    stored = np.asarray(Image.open(tmp_path / "masks" / "0.jpg"))
    assert not np.isin(stored, (0, 255)).all()
    np.testing.assert_array_equal(everything(data), masks == 255)
    blurred = "6 masks are JPEG files, whose values are blurred: from 128 on they become 255, else 0"
    assert Note("target", blurred) in data.notes


@pytest.mark.parametrize("splits", [("",), ("train", "test")])
def test_folders_of_sites_are_clients(load, tmp_path, splits):
    data = load(write_circles(tmp_path, splits), group_column="folder")
    assert data.kind.facts["classes"] == 2
    for number, site in enumerate(("lyon", "turin")):
        x, y = circles(number)
        parts = (split for split in (data.train, data.test))
        held = [(s.columns["x"][s.groups == site][:, 0], s.columns["y"][s.groups == site]) for s in parts]
        if len(splits) == 2:
            for found in held:
                np.testing.assert_array_equal(found[0], x)
                np.testing.assert_array_equal(found[1], y)
            continue
        train, test = held_out_fifth(np.zeros(24), np.repeat([0, 1], 12))
        train, test = (rows[rows // 12 == number] % 12 for rows in (train, test))
        assert len(test) in (2, 3)
        for found, rows in zip(held, (train, test), strict=True):
            np.testing.assert_array_equal(found[0], x[rows])
            np.testing.assert_array_equal(found[1], y[rows])
    shares = partition_dataset(data, "natural:folder", 2, 0, 0.0)
    assert shares.names == ("lyon", "turin")


def test_the_defaults_are_a_unet_and_sites(tmp_path, cache_dir):
    write(tmp_path / "one", some())
    write_circles(tmp_path / "sites")
    assert defaults_for(str(tmp_path / "one")) == {"model": "unet", "partition": "iid"}
    assert defaults_for(str(tmp_path / "sites")) == {"model": "unet", "partition": "natural:folder"}
    assert defaults_for("shape:1x8x8:2:masks") == {"model": "unet", "partition": "iid"}
    x, y = circles(0)
    name = keep_arrays(cache_dir, {"x": x, "y": y, "x_test": x, "y_test": y})
    assert defaults_for(name) == {"model": "unet", "partition": "iid"}
    np.save(tmp_path / "train-masks.npy", y)
    assert defaults_for(str(tmp_path)) == {"model": "unet", "partition": "iid"}


def test_masks_are_resized_to_the_nearest_pixel(load, tmp_path):
    masks = some((0, 1, 2), shape=(8, 8))
    data = load(write(tmp_path, np.repeat(np.repeat(masks, 2, 1), 2, 2)), image_size=8)
    np.testing.assert_array_equal(everything(data), masks)
    assert data.train.columns["x"].shape[2:] == (8, 8)


def test_images_of_different_sizes_are_resized_with_their_masks(load, tmp_path):
    write(tmp_path, some(shape=(8, 8)))
    for kind, value in (("images", 90), ("masks", 2)):
        Image.new("L", (6, 4), value).save(tmp_path / kind / "z.png")
    with pytest.raises(UserError, match=r"image-size: 0 is not allowed; .*z.png has 4x6, others 8x8"):
        load(tmp_path)
    assert (everything(load(tmp_path, image_size=8))[-1] == 2).all()


@pytest.mark.parametrize(
    ("mask", "told"),
    [
        (None, r"dataset: \S*3.png has no mask of its name in '\S*masks' \(2 of 6 images have none\)"),
        (Image.new("L", (4, 4)), r"the mask \S*3.png has 4x4, its image 5x4 pixels; expected the same"),
        (Image.new("RGB", (4, 5), (1, 2, 3)), r"3.png is in colour; expected grey values or a palette"),
        (b"no image", r"\S*masks/3.png is not a valid image"),
        (Image.fromarray(np.full((5, 4), 300, np.uint16)), "3.png holds the value 300; expected 0 to 255"),
        (
            Image.fromarray(np.linspace(0, 254, 20).astype(np.uint8).reshape(5, 4)),
            r"the masks hold 22 different values \(0, 1, 2, 13, 26, ...\); expected class numbers",
        ),
    ],
)
def test_a_mistake_is_one_line(load, tmp_path, mask, told):
    """Of the fourth mask: it is missing, as the next one, or another one."""
    path = write(tmp_path, some()) / "masks" / "3.png"
    if mask is None:
        path.unlink()
        path.with_name("4.png").rename(path.with_name("5_mask.png"))
    elif isinstance(mask, bytes):
        path.write_bytes(mask)
    else:
        mask.save(path)
    with pytest.raises(UserError, match=told) as raised:
        load(tmp_path)
    assert "\n" not in str(raised.value)


def test_keys_of_other_folders_are_refused(load, tmp_path):
    write(tmp_path, some())
    with pytest.raises(UserError, match="label-column: 'a' is not allowed; .* contains images and masks"):
        load(tmp_path, label_column="a")
    with pytest.raises(UserError, match="'natural:folder' is not allowed; .* there are no folders of sites"):
        load(tmp_path, group_column="folder")
    data = load(tmp_path)
    for partition in ("dirichlet:0.5", "shards:1", "silos", "pathological:1", "DirichletPartitioner:alpha=1"):
        with pytest.raises(
            UserError, match="'iid' or 'natural:COLUMN': an example has a mask, not one class"
        ):
            partition_dataset(data, partition, 2, 0, 0.0)
    for partition in ("iid", "LinearPartitioner:"):
        shares = partition_dataset(data, partition, 2, 0, 0.0)
        assert sorted(shares.train.rows.tolist()) == list(range(5))


def test_masks_without_an_image_are_left_out_with_a_note(load, tmp_path):
    write(tmp_path, some())
    Image.new("L", (4, 5)).save(tmp_path / "masks" / "7.png")
    (told,) = (note.text for note in load(tmp_path).notes if note.row == "left out")
    assert told == f"1 mask without an image in {str(tmp_path / 'masks')!r}"


def test_classes_have_the_names_of_a_text_file(load, tmp_path, configured):
    """A class that no mask has can be named; metrics by class have the names, without the background's."""
    folder = write(tmp_path, some())
    (folder / "classes.txt").write_text("background\nliver\nlesion\nvessel\n", encoding="utf-8")
    data = load(folder)
    assert (data.spec.outputs, data.output_names) == (4, ["background", "liver", "lesion", "vessel"])
    keys = {"metrics": "sensitivity", "metrics_by_class": True, "partition": "iid"}
    problem = inputs_of(configured(dataset=str(folder), **keys)).dataset.problem
    assert problem.metrics[-3:] == ("sensitivity-liver", "sensitivity-lesion", "sensitivity-vessel")
    for text, count in (("background\nliver\n", 2), ("a\na\nb\n", 3)):
        (folder / "classes.txt").write_text(text)
        with pytest.raises(UserError, match=f"classes.txt' has {count} names; expected a different one for"):
            load(folder)
    (folder / "classes.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="classes.txt' is not a text in UTF-8"):
        load(folder)


def in_hubs_layout(folder, masks, column="mask"):
    """Images of the shade 10 i and these masks as a Parquet file."""
    images = [Image.new("L", mask.shape[::-1], 10 * i) for i, mask in enumerate(masks)]
    features = datasets.Features({column: datasets.Image(), "image": datasets.Image()})
    columns = {"image": images, column: [Image.fromarray(mask) for mask in masks]}
    folder.mkdir()
    datasets.Dataset.from_dict(columns, features=features).to_parquet(folder / "train.parquet")
    return folder


@pytest.mark.sampled(3)
@pytest.mark.parametrize("column", ["mask", "label", "annotation", "lesions"])
def test_masks_in_the_hubs_layout(load, tmp_path, column):
    """Found by the usual names, or named; resized to the nearest pixel like those of folders."""
    masks = some()
    folder = in_hubs_layout(tmp_path / "hub", masks, column)
    keys = {"label_column": column, "image_column": "image"} if column == "lesions" else {}
    data = load(folder, **keys)
    np.testing.assert_array_equal(everything(data), masks)
    assert str(data.spec) == "1x5x4 with masks of 3 classes"
    by_folder = load(write(tmp_path / "folder", masks), image_size=8)
    resized = load(folder, image_size=8, **keys)
    np.testing.assert_array_equal(everything(resized), everything(by_folder))


def test_images_that_are_no_masks_are_refused(load, tmp_path):
    folder = in_hubs_layout(tmp_path / "hub", some((0, 128, 255)))
    told = r"dataset: the masks hold 3 different values \(0, 128, 255\); expected class numbers 0, 1, 2"
    with pytest.raises(UserError, match=told):
        load(folder)
    with pytest.raises(UserError, match="label-column: 'image' holds images, not classes"):
        load(folder, label_column="image")
