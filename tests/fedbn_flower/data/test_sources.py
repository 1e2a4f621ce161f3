"""Datasets, decoded once."""

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image, Value
from PIL import Image as Picture
from sklearn.datasets import load_digits

from fedbn_flower.core.errors import UserError
from fedbn_flower.data.readers.digits import SITES
from fedbn_flower.site.inputs import local_task

IMAGES = np.random.default_rng(0).integers(0, 256, (30, 6, 5, 3)).astype(np.uint8)


def write_folder(path, splits=("train", "test"), features=None, size=None, writers=3, **columns):
    """A local dataset in the hub's layout: one parquet file a split, PNG images inside."""
    features = features or {"picture": Image(), "digit": ClassLabel(num_classes=4)}
    path.mkdir(parents=True, exist_ok=True)
    rows = {
        "picture": [Picture.fromarray(i) for i in IMAGES],
        "digit": [i % 4 for i in range(30)],
        "writer": [f"w{i % writers}" for i in range(30)],
    } | columns
    if size:
        rows["picture"][3] = rows["picture"][3].resize(size)
    data = Dataset.from_dict({n: rows[n] for n in features}, features=Features(features))
    for split in splits:
        DatasetDict({split: data})[split].to_parquet(path / f"{split}-00000-of-00001.parquet")
    return str(path)


@pytest.mark.parametrize("name", ["~nobody-of-that-name/x", "text:~nobody-of-that-name/x"])
def test_the_home_of_nobody_is_no_dataset(load, name):
    with pytest.raises(UserError, match="^dataset: .*~nobody-of-that-name/x'"):
        load(name)


@pytest.mark.parametrize(
    "name",
    ["nowhere.csv", "play.txt", ".here", "a/b/c", "here/mnist", "scans.zip", "C:\\scans", "a/", "/a/b"],
)
def test_a_path_that_is_missing_is_reported_without_asking_a_hub(load, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    monkeypatch.setattr("fedbn_flower.files.opening.load_splits", lambda *_: pytest.fail("asked a hub"))
    as_text = " (for a text write 'text:play.txt')" if name == "play.txt" else ""
    with pytest.raises(UserError) as caught:
        load(name)
    assert str(caught.value) == f"dataset: no such file or folder: {name!r}{as_text}"


@pytest.mark.parametrize("name", ["mnist", "owner/mnist", "owner/mnist-v1.1", "o.w/wikitext-103.v1"])
def test_other_names_are_a_hubs(load, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)

    def asked(*names):
        raise UserError(f"asked for {names}")

    monkeypatch.setattr("fedbn_flower.files.opening.load_splits", asked)
    with pytest.raises(UserError, match="asked for"):
        load(name)


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("digit", "no such file or folder: 'digit' (did you mean 'digits'?); cannot be reached"),
        ("mnist", "no such file or folder: 'mnist'; cannot be reached"),
        ("sythetic:1,1", "no such file or folder: 'sythetic:1,1' (did you mean 'synthetic:'?)"),
    ],
)
def test_a_misspelt_name_of_ours_is_suggested(load, monkeypatch, name, end):
    def unreachable(*names):
        raise UserError("dataset: cannot be reached")

    monkeypatch.setattr("fedbn_flower.files.opening.load_splits", unreachable)
    with pytest.raises(UserError) as caught:
        load(name)
    assert str(caught.value) == f"dataset: {end}"


def test_a_text_is_recognised_by_its_name(load, tmp_path):
    (tmp_path / "play.txt").write_text("A:\nTo be\n")
    output = f"dataset: '{tmp_path}/play.txt' is not allowed; expected 'text:{tmp_path}/play.txt' for a text"
    with pytest.raises(UserError) as caught:
        load(tmp_path / "play.txt")
    assert str(caught.value) == output


def test_a_local_folder_is_decoded_exactly_and_only_once(load, tmp_path, monkeypatch):
    name = write_folder(tmp_path / "data")
    data = load(name)
    np.testing.assert_array_equal(data.train.columns["x"], IMAGES.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(data.test.columns["y"], np.arange(30) % 4)
    assert (data.spec.channels, data.spec.height, data.spec.width, data.spec.classes) == (3, 6, 5, 4)
    np.testing.assert_allclose(data.kind.facts["mean"], IMAGES.mean((0, 1, 2)) / 255)
    np.testing.assert_allclose(data.kind.facts["std"], IMAGES.std((0, 1, 2)) / 255)
    assert isinstance(data.train.columns["x"].base, np.memmap)
    assert not data.train.columns["x"].flags.writeable

    monkeypatch.setattr("fedbn_flower.files.opening.load_splits", lambda *_: pytest.fail("loaded again"))
    np.testing.assert_array_equal(load(name).train.columns["x"], data.train.columns["x"])


def test_a_changed_folder_is_decoded_anew(load, tmp_path):
    name = write_folder(tmp_path / "data", ["train"])
    load(name)
    write_folder(tmp_path / "data", ["train"], digit=[0] * 30)
    assert set(load(name).train.columns["y"]) == {0}


def class_folders(path):
    for split in ("train", "test"):
        for label, shade in (("cat", 10), ("dog", 200)):
            folder = path / split / label
            folder.mkdir(parents=True)
            for i in range(3):
                Picture.new("L", (4, 4), shade + i).save(folder / f"{i}.png")
    return str(path)


def test_images_are_resized_to_the_size_requested(load, tmp_path):
    name = write_folder(tmp_path / "data", ["train"], size=(9, 9))
    with pytest.raises(UserError, match="image-size: 0 is not allowed"):
        load(name)
    assert load(name, image_size=7).train.columns["x"].shape == (24, 3, 7, 7)


def labelled(kind, labels):
    return {"features": {"picture": Image(), "label": Value(kind)}, "label": labels}


@pytest.mark.parametrize(
    ("written", "options", "message"),
    [
        ({"splits": ("test",)}, {}, "no train split; it has"),
        ({"features": {"picture": Image()}}, {}, "no label column found"),
        ({"features": {"digit": Value("int64")}}, {}, "no image column found"),
        ({}, {"label_column": "digt"}, "did you mean 'digit'"),
        ({}, {"group_column": "author"}, "partition: unknown name 'author'"),
        (labelled("float32", [0.5] * 29 + [None]), {}, "holds neither class numbers nor class names"),
        (labelled("string", ["x"] * 29 + [None]), {}, "'label' is empty in 1 row"),
        (labelled("int64", [-1] * 30), {}, "negative class"),
        ({}, {"label_column": "picture"}, "'picture' holds images, not classes"),
        ({}, {"image_column": "digit"}, r"'digit' holds no images; expected one of \['picture'\]"),
    ],
)
def test_what_cannot_be_read_is_one_line(load, tmp_path, written, options, message):
    with pytest.raises(UserError, match=message) as caught:
        load(write_folder(tmp_path / "d", **{"splits": ["train"]} | written), **options)
    assert "\n" not in str(caught.value)


def test_an_empty_folder_is_no_dataset(load, tmp_path):
    with pytest.raises(UserError, match="^dataset: .*expected"):
        load(tmp_path)


def test_a_file_that_is_no_dataset_is_reported(load, tmp_path):
    (tmp_path / "train.parquet").write_bytes(b"not parquet")
    with pytest.raises(UserError, match="dataset: cannot load"):
        load(str(tmp_path))


# ---- a node with its own data -----------------------------------------------------------------------


def test_a_node_may_name_its_own_folder(configured, tmp_path):
    features = {"picture": Image(), "digit": ClassLabel(num_classes=4)}
    name = write_folder(tmp_path / "site", features=features)
    task = local_task(configured(val_fraction=0.2), 1, {"partition-id": 1, "data-path": name})
    assert (len(task.train), len(task.evaluation["val"]), len(task.evaluation["test"])) == (24, 6, 30)
    assert set(task.train.rows).isdisjoint(task.evaluation["val"].rows)
    images, labels = next(task.evaluation["test"].load([np.arange(30)]))
    np.testing.assert_allclose(images.numpy() * 255, IMAGES.transpose(0, 3, 1, 2), atol=1e-4)
    assert labels.tolist() == [i % 4 for i in range(30)]


def test_a_partition_that_does_not_exist_is_reported(configured):
    with pytest.raises(UserError, match="partition-id: 2 is not allowed; expected less than num-clients, 2"):
        local_task(configured(), 2, {})


def numpy_files(folder):
    folder.mkdir()
    for split, count in (("train", 12), ("test", 5)):
        np.save(folder / f"{split}-images.npy", IMAGES[:count, :, :, 0])
        np.save(folder / f"{split}-labels.npy", np.arange(count) % 3)
    return str(folder)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda p: "digits", "the digits have no columns"),
        (lambda p: numpy_files(p / "arrays"), "'.*arrays' contains NumPy files"),
        (lambda p: class_folders(p / "classes"), "'.*classes' contains class folders"),
    ],
)
def test_where_there_are_no_columns_none_can_be_named(load, tmp_path, make, reason):
    """Beside other sites, whose data have columns, such a site's data are read as they are."""
    name = make(tmp_path)
    for key in ("image-column", "label-column"):
        given = {key.replace("-", "_"): "digit"}
        with pytest.raises(UserError, match=f"^{key}: 'digit' is not allowed; expected 'auto': {reason}$"):
            load(name, **given)
        assert len(load(name, of_site=True, **given).train)


def test_a_folder_of_numpy_files(load, tmp_path):
    folder = tmp_path / "arrays"
    data = load(numpy_files(folder))
    np.testing.assert_array_equal(data.train.columns["x"], IMAGES[:12, None, :, :, 0])
    assert data.spec.classes == 3
    np.save(folder / "test-labels.npy", np.arange(4))
    with pytest.raises(UserError, match=r"test-labels.npy is int64 \(4,\); expected 5 class numbers"):
        load(str(folder))
    np.save(folder / "test-images.npy", np.zeros((4, 6, 5)))
    with pytest.raises(UserError, match="test-images.npy holds float64"):
        load(str(folder))


def test_numpy_labels_may_be_numbers_and_classes_have_names(load, tmp_path):
    folder = tmp_path / "arrays"
    numpy_files(folder)

    (folder / "classes.txt").write_text("benign\nmalignant\nunclear\n")
    assert load(folder).output_names == ["benign", "malignant", "unclear"]
    (folder / "classes.txt").write_text("benign\nmalignant\n")
    with pytest.raises(UserError, match=r"classes.txt' has 2 names; expected a different one .* 3 classes"):
        load(folder)
    (folder / "classes.txt").unlink()
    ages = np.linspace(20, 80, 17)
    np.save(folder / "train-labels.npy", ages[:12])
    with pytest.raises(UserError, match=r"labels of different kinds, float32 \(12, 1\) and int64 \(5,\)"):
        load(folder)
    np.save(folder / "test-labels.npy", ages[12:])
    data = load(folder)
    assert (data.spec.predicts, data.spec.outputs) == ("numbers", 1)
    np.testing.assert_array_equal(data.test.columns["y"][:, 0], ages[12:].astype(np.float32))
    np.save(folder / "test-labels.npy", np.full(5, np.inf))
    with pytest.raises(UserError, match="dataset: test-labels.npy holds values that are not finite"):
        load(folder)


def test_the_scanners_show_the_digits_of_each_site_differently(load):
    """By the definition of each scanner: contrast, noise, resolution; no digit is at two sites or twice."""
    data = load("scanners", group_column="site")
    digits = np.rint(load_digits().images * (255 / 16))
    train, test = data.train, data.test
    assert len(train) + len(test) == len(digits)
    sites = {name: train.columns["x"][train.groups == name][:, 0].astype(float) for name in SITES}
    originals = {scan.astype(np.uint8).tobytes() for scan in digits}
    assert all(scan.astype(np.uint8).tobytes() in originals for scan in sites["clear"])
    assert (sites["faint"].min(), sites["faint"].max()) == (160, np.rint(160 + 255 / 4))
    squares = sites["coarse"].reshape(-1, 4, 2, 4, 2)
    assert (squares == squares[:, :, :1, :, :1]).all()
    corner = sites["noisy"][:, 0, 0]  # black in nearly all digits, so half of the noise is cut off
    assert (digits[:, 0, 0] == 0).all()
    assert corner[corner > 0].std() == pytest.approx(51 * (1 - 2 / np.pi) ** 0.5, rel=0.15)
    for name, scans in sites.items():
        held_out = test.columns["y"][test.groups == name]
        counts = np.bincount(held_out, minlength=10)
        assert len(held_out) in (90, 89), name
        assert counts.min() >= 8
        assert len(scans) + len(held_out) in (449, 450)


def test_a_scanner_is_a_site_or_nobodys(load):
    assert load("scanners").train.groups is None
    with pytest.raises(
        UserError, match=r"partition: unknown name 'natural:age' .*; expected one of iid, natural:site"
    ):
        load("scanners", group_column="age")
