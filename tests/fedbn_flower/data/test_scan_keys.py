"""Keys of NIfTI and DICOM files: where they are refused, and what sites make of them."""

import builtins
import sys

import numpy as np
import pytest
from PIL import Image

from fedbn_flower.core.errors import UserError
from fedbn_flower.core.process_cache import clear_process_caches
from fedbn_flower.data import Request, load_dataset
from fedbn_flower.data.images.scans import read_scan
from fedbn_flower.federation.tasks import local_task

from .scan_files import pydicom, write_dicom, write_nifti, write_series

RNG = np.random.default_rng(0)
FULL = "0..65535"


def load(cache_dir, folder, **options):
    clear_process_caches()
    return load_dataset(Request(str(folder), **options), cache_dir)


def some(shape=(5, 4, 3), low=0, high=1000, dtype=np.int16):
    return RNG.integers(low, high, shape).astype(dtype)


def refused(cache_dir, folder, **options):
    with pytest.raises(UserError) as error:
        load(cache_dir, folder, **options)
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


def test_keys_that_only_scans_have_are_refused_elsewhere(cache_dir, tmp_path):
    for i in range(10):
        folder = tmp_path / "pictures" / "ab"[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(some((4, 4), 0, 255, np.uint8)).save(folder / f"{i}.png")
        write_nifti(tmp_path / "scans" / "ab"[i % 2] / f"{i}.nii.gz", some((4, 4, 4)))
    why = "the images are no NIfTI or DICOM files"
    found = refused(cache_dir, tmp_path / "pictures", spacing=1.0)
    assert found == f"spacing: 1.0 is not allowed; expected 0: {why}"
    found = refused(cache_dir, tmp_path / "pictures", window="0..1")
    assert found == f"window: '0..1' is not allowed; expected 'auto': {why}"
    assert "one number of pixels" in refused(cache_dir, tmp_path / "pictures", image_size="4x4x4")
    assert "LOW less than HIGH" in refused(cache_dir, tmp_path / "scans", window="3..1")
    write_dicom(tmp_path / "dicom" / "a" / "1.dcm", some((4, 4)))
    write_dicom(tmp_path / "dicom" / "b" / "1.dcm", some((4, 4)))
    assert "does not say its spacing" in refused(cache_dir, tmp_path / "dicom", spacing=1.0)


@pytest.mark.parametrize(
    ("package", "name"), [("nibabel", "1.nii.gz"), ("pydicom", "1.dcm"), ("nibabel", "case")]
)
def test_without_the_extra_one_line_says_which(tmp_path, monkeypatch, package, name):
    if name == "case":
        write_series(tmp_path / name, some((3, 4, 4)))
    else:
        (tmp_path / name).write_bytes(b"something")
    for module in [m for m in sys.modules if m.partition(".")[0] == package or ".images.scans." in m]:
        monkeypatch.delitem(sys.modules, module)
    imported = builtins.__import__

    def without(module, *rest, **more):
        if module.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return imported(module, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError) as error:
        read_scan(tmp_path / name)
    kind = "NIfTI" if name.endswith(".gz") else "DICOM"
    install = "pip install 'fedbn-flower[medical]'"
    assert (
        str(error.value)
        == f"dataset: {tmp_path / name} is a {kind} file, which needs other packages: {install}"
    )


def test_a_dataset_without_scans_has_the_name_in_the_cache_that_it_had():
    assert "spacing" not in str(Request("digits"))
    assert "window" not in str(Request("digits"))
    assert str(Request("x", spacing=1.5)) != str(Request("x"))
    assert pydicom.__version__


def test_a_site_reads_its_scans_as_the_run_says(configured, tmp_path):
    """The server knows the shape alone; spacing, size and window are the run's keys."""
    for i in range(5):
        values = np.zeros((8, 8, 8), np.float32)
        values[2:6, 2:6, i : i + 3] = 100
        for kind, found in (("images", values), ("masks", (values > 50).astype(np.uint8))):
            write_nifti(tmp_path / kind / f"{i}.nii.gz", found, (1, 1, 2))
    keys = {"dataset": "shape:1x8x8x8:2:masks", "spacing": 2.0, "image_size": "8x8x8", "window": "0..100"}
    config = configured(**keys, partition="iid", model="auto", client="fedbn", strategy="fedavg")
    task = local_task(config, 0, {"data-path": str(tmp_path), "cache-dir": str(tmp_path / "cache")})
    images, masks = task.train.prepared(np.arange(len(task.train)))
    assert images.shape == (4, 1, 8, 8, 8)
    assert masks.shape == (4, 8, 8, 8)
    assert 0.5 < images.max() <= 1
    assert task.model(images).shape == (4, 2, 8, 8, 8)
    with pytest.raises(UserError, match=r"examples of 1x8x8x8 with masks of 2 classes, not of 1x8x4x4"):
        local_task(config.model_copy(update={"image_size": 0}), 0, {"data-path": str(tmp_path)})
