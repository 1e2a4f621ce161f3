"""What a run says of pictures as people have them, before anything is learnt; or why it refuses them."""

import warnings

import numpy as np
import pytest
import torch

pytest.importorskip("fedbn_flower.own_data")

from fedbn_flower.config.making import run_config
from fedbn_flower.core import free_memory
from fedbn_flower.core.errors import UserError
from fedbn_flower.core.process_cache import clear_process_caches
from fedbn_flower.data import Request, load_dataset
from fedbn_flower.data.images.moments import Moments
from fedbn_flower.data.readers.arrays import keep_arrays
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.own_data.torch_datasets import pooled

from . import folders, mask_files, picture_files, picture_tables
from .pictures import CASES


@pytest.fixture
def dataset(tmp_path):
    """The dataset of a run on files that a function writes."""

    def read(write, file="", at_site="", **keys):
        folder = tmp_path / "data"
        if not folder.exists():
            folder.mkdir()
            write(folder)
        clear_process_caches()
        place = str(folder / file)
        given = {"partition": "iid"} | {name.replace("_", "-"): value for name, value in keys.items()}
        given |= {"dataset": at_site or place, "cache-dir": str(tmp_path / "cache")}
        return inputs_of(run_config(given), place if at_site else "").dataset

    return read


def said(found, folder):
    rows = {}
    for note in found.notes:
        rows.setdefault(note.row, []).append(note.line.replace(str(folder), "FOLDER"))
    return rows


def params(cases):
    """Reading 90 million pixels is slow."""
    return [
        pytest.param(case, id=case.name, marks=[pytest.mark.slow] if case.name == "a mosaic" else [])
        for case in cases
    ]


@pytest.mark.parametrize("case", params(CASES))
def test_either_it_is_read_and_said_or_one_line_says_what_to_do(dataset, tmp_path, case):
    """At a site as in a simulation, but that a site has to be told all classes which a table has by name."""
    folder, keys = tmp_path / "data", {name.replace("-", "_"): value for name, value in case.keys.items()}
    if isinstance(case.says, str):
        with pytest.raises(UserError) as raised:
            dataset(case.write, case.file, **keys)
        assert str(raised.value).replace(str(folder), "FOLDER") == case.says
        assert "\n" not in case.says
        if keys:
            with pytest.raises(UserError) as raised:
                dataset(case.write, case.file, at_site="shape:1x4x4:2", **keys)
            assert "\n" not in str(raised.value)
        return
    found = dataset(case.write, case.file, **keys)
    assert said(found, folder) == case.says
    assert (found.class_names, found.spec.shape) == (case.classes, case.shape)
    groups = found.train.groups
    assert (() if groups is None else tuple(np.unique(groups).tolist())) == case.sites
    assert case.pictures is None or pictures_of(found) == sorted(case.pictures)
    if case.sites:
        return
    if case.classes and "=" not in keys.get("label_column", "="):
        keys["label_column"] += f"={'|'.join(case.classes)}"
    own = dataset(case.write, case.file, at_site=found.spec.as_dataset(), **keys)
    for split in ("train", "test"):
        for name, column in getattr(found, split).columns.items():
            np.testing.assert_array_equal(column, getattr(own, split).columns[name])


def test_each_case_has_a_name_of_its_own():
    assert len({case.name for case in CASES}) == len(CASES)


def pictures_of(found):
    """All pictures' first pixels, (N, channels), with their labels, sorted."""
    parts = [
        np.column_stack(
            [split.columns["x"].reshape(len(split), found.spec.shape[0], -1)[..., 0], split.columns["y"]]
        )
        for split in (found.train, found.test)
    ]
    return sorted(map(tuple, np.concatenate(parts).tolist()))


def test_volumes_have_the_pages_of_images_and_masks(dataset):
    found = dataset(mask_files.volumes)
    assert found.train.columns["x"][0, 0, :, 0, 0].tolist() == [10, 20, 30]
    assert found.train.columns["y"][0, :, 0, 0].tolist() == [0, 1, 1]


def test_a_table_by_split_is_one(dataset):
    found = dataset(picture_tables.a_table_by_split)
    assert found.train.columns["x"][:, 0, 0, 0].tolist() == list(range(6))


def test_linked_folders_are_read_and_a_change_in_them_is_seen(dataset, tmp_path):
    found = dataset(folders.linked_classes)
    assert pictures_of(found) == [(i, 1) for i in range(5)] + [(10 + i, 0) for i in range(5)]
    (tmp_path / "pool" / "a" / "0.png").unlink()
    assert len(pictures_of(dataset(folders.linked_classes))) == 9


# ---- masks by site ----------------------------------------------------------------------------------


def test_masks_are_numbered_by_site_in_a_simulation_as_at_the_sites(dataset):
    """Lyon writes 0 and 255, Turin 0 and 1: the left half is background, the right half class 1."""
    write = mask_files.sites_that_write_masks_differently
    whole = dataset(write, partition="natural:folder", num_clients=2)
    for site in ("lyon", "turin"):
        own = dataset(write, site, at_site="shape:1x4x4:2:masks")
        y = [split.columns["y"] for split in (own.train, own.test)]
        y += [split.columns["y"][split.groups == site] for split in (whole.train, whole.test)]
        assert [len(part) for part in y] == [4, 1, 4, 1]
        for part in y:
            assert (part == [0, 0, 1, 1]).all()


def test_masks_of_arrays_are_numbered_by_client(tmp_path):
    """255 is void where another class than 0 is beside it, as at Oslo."""
    x = np.zeros((5, 1, 2, 2), np.uint8)
    mask = np.tile(np.array([[0, 1], [1, 0]], np.uint8), (5, 1, 1))
    found = pooled(
        {"lyon": (x, 255 * mask), "turin": (x, mask), "oslo": (x, np.where(mask, 255, 2).astype(np.uint8))}
    )
    name = keep_arrays(tmp_path, found.arrays, found.groups, found.notes)
    data = load_dataset(Request(name, group_column="client"), tmp_path)
    assert data.spec.outputs == 3
    for site, expected in (("lyon", mask[0]), ("turin", mask[0]), ("oslo", [[2, 255], [255, 2]])):
        assert (data.train.columns["y"][data.train.groups == site] == expected).all()
    assert [str(note) for note in data.notes if note.row != "examples"] == [
        "target: masks of 'lyon' of 0 and 255 have two classes: 255 is class 1",
        "left out: pixels of value 255 in the masks of 'oslo' do not count",
    ]


# ---- 16 bits ----------------------------------------------------------------------------------------


def test_pictures_of_16_bits_are_standardised_alike_in_a_simulation_and_at_sites(dataset, tmp_path):
    """Of 8 bits at one site and of 16 at another: the sums of both are those of all in one place."""
    whole = dataset(picture_files.eight_and_sixteen_bits).kind
    x = whole.train["x"].astype(np.float64) / 65535
    prepared = whole.prepare(np.arange(2), True)
    np.testing.assert_allclose(prepared.mean, [x.mean()], rtol=1e-6)
    np.testing.assert_allclose(prepared.std, [x.std()], rtol=1e-6)
    plain, _ = whole.prepare(np.arange(2), False)({"x": torch.tensor(whole.train["x"]), "y": torch.zeros(8)})
    np.testing.assert_allclose(plain.numpy(), x, rtol=1e-7)
    parts = [(whole.train["x"][:4] // 257).astype(np.uint8), whole.train["x"][4:]]
    sent = [Moments.received(Moments.of(part).arrays(), 1) for part in parts]
    assert (sent[0] + sent[1]).scale() == (sent[1] + sent[0]).scale() == Moments.of(whole.train["x"]).scale()


# ---- memory -----------------------------------------------------------------------------------------


def test_images_that_memory_cannot_hold_are_refused_before_they_are_made(dataset):
    with pytest.raises(
        UserError, match="^image-size: too large: 5 images of 1x100000x100000 would take 46.6 GiB"
    ):
        dataset(folders.one_class, image_size=100_000)


def test_a_picture_that_memory_cannot_hold_is_refused_before_it_is_decoded(dataset, monkeypatch):
    """90 million pixels of a byte, and the copy that their conversion makes."""
    monkeypatch.setattr(free_memory, "available_memory", lambda: 2 * 9500**2 - 1)
    refused = r"^dataset: too large: \S*b/4.png of 9500x9500 pixels would take"
    with warnings.catch_warnings(action="error"), pytest.raises(UserError, match=refused):
        dataset(picture_files.a_mosaic, image_size=4)
