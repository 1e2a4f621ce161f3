"""NIfTI and DICOM files that are broken, mixed, or do not go with a key: one line names them."""

import builtins
import sys

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fedbn_flower.clinic.decoding import read_scan
from fedbn_flower.core.errors import UserError

from .scan_files import write_dicom, write_nifti, write_series
from .test_scans import some


def refused(load, folder, **options):
    with pytest.raises(UserError) as error:
        load(folder, **options)
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


def broken(folder, write):
    """Six scans of two classes, of which the last is another."""
    for i in range(5):
        write_nifti(folder / "ab"[i % 2] / f"{i}.nii.gz", some((4, 4, 4)))
    return write(folder / "b" / "5.nii.gz")


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda path: path.write_bytes(b"no volume"), "cannot be read as a NIfTI file ("),
        (lambda path: path.write_bytes(b""), "is empty (0 bytes)"),
        (lambda path: path.symlink_to("nowhere"), "is a link to a file that does not exist"),
        (lambda path: write_nifti(path, np.full((4,) * 3, np.nan, np.float32)), "values that are not finite"),
        (lambda path: write_nifti(path, some().astype(np.complex64)), "values of type complex64"),
        (lambda path: write_nifti(path, some((4, 4, 4, 1, 3))), "has the shape (4, 4, 4, 1, 3)"),
        (lambda path: write_nifti(path, some((4, 4, 5))), "5.nii.gz has 5x4x4, others 4x4x4"),
        (lambda path: write_nifti(path, some((4, 4, 1))), "is a picture, others are volumes; expected"),
        (lambda path: write_nifti(path, some((4, 4, 4, 2))), "number of channels: "),
    ],
)
def test_a_nifti_file_that_cannot_be_used_is_named(load, tmp_path, write, reason):
    broken(tmp_path, write)
    message = refused(load, tmp_path)
    assert reason in message
    assert "b/5.nii.gz" in message


def again(folder, slice_, **attributes):
    write_series(folder, some((5, 4, 4)), order=[slice_], **attributes)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda folder: (folder / "1.dcm").write_bytes(b"no picture"), "1.dcm is not a valid DICOM file"),
        (lambda folder: (folder / "1.dcm").write_bytes(b""), "1.dcm is empty (0 bytes)"),
        (lambda folder: (folder / "1.dcm").unlink(), "0.dcm and 2.dcm lie 4 mm apart, others 2"),
        (lambda folder: again(folder, 3, names="9.dcm"), "two slices at one place: 3.dcm and 9.dcm"),
        (lambda folder: write_series(folder, some((5, 4, 5)), order=[1]), "1.dcm has 4x5 pixels; expected"),
        (lambda folder: again(folder, 1, PixelSpacing=[2, 2]), "spacing of pixels: 1.dcm has another"),
        (
            lambda folder: again(folder, 1, ImageOrientationPatient=[0, 1, 0, 1, 0, 0]),
            "holds slices of different orientation: 1.dcm has another",
        ),
        (lambda folder: again(folder, 1, series="9"), "lacks a slice, or has one of another series"),
        (
            lambda folder: write_dicom(
                folder / "1.dcm", some((4, 4)), SeriesInstanceUID="1.2.3", ImagePositionPatient=[0, 0, 2]
            ),
            "1.dcm does not say its ImageOrientationPatient",
        ),
    ],
)
def test_a_series_that_is_broken_or_mixed_is_named(load, tmp_path, change, reason):
    for name in ("a", "b"):
        write_series(tmp_path / name / "case", some((5, 4, 4)))
    change(tmp_path / "b" / "case")
    assert reason in refused(load, tmp_path)


def test_a_table_of_slices_is_told_to_name_their_folders(load, tmp_path):
    for i in range(5):
        write_series(tmp_path / "scans" / f"p{i}", some((3, 4, 4)))
    rows = [{"image": f"scans/p{i}/{k}.dcm", "label": i % 2} for i in range(5) for k in range(3)]
    pd.DataFrame(rows).to_csv(tmp_path / "labels.csv")
    told = "image-column: 'image' holds 'scans/p0/0.dcm', and that is a slice of the series in 'scans/p0'"
    assert refused(load, tmp_path).startswith(told)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"SOPClassUID": "1.2.840.10008.5.1.4.1.1.66.4"}, "is a DICOM segmentation, which is not read"),
        ({"PixelData": b"\0"}, "cannot be read as a DICOM file ("),
    ],
)
def test_a_dicom_file_that_cannot_be_used_is_named(load, tmp_path, attributes, reason):
    for i in range(5):
        write_dicom(tmp_path / "ab"[i % 2] / f"{i}.dcm", some((4, 4)))
    write_dicom(tmp_path / "b" / "5.dcm", some((4, 4)), **attributes)
    message = refused(load, tmp_path)
    assert reason in message
    assert "5.dcm" in message


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda path, values: write_nifti(path, values[:-1]), "has 4x4x3, its image 4x4x4 pixels"),
        (
            lambda path, values: write_nifti(path, values, (1, 1, 2)),
            "lies elsewhere in the patient than its image",
        ),
        (lambda path, values: write_nifti(path, values + 0.5), "holds values from 0.5 to 1.5; expected"),
        (lambda path, values: write_nifti(path, np.stack([values] * 2, -1)), "has 2 channels; expected one"),
    ],
)
def test_a_mask_that_does_not_fit_is_named(load, tmp_path, write, reason):
    for i in range(5):
        values = some((4, 4, 4), 0, 2, np.float32)
        write_nifti(tmp_path / "images" / f"{i}.nii.gz", values)
        write_nifti(tmp_path / "masks" / f"{i}.nii.gz", values)
    write(tmp_path / "masks" / "4.nii.gz", values)
    assert f"the mask {tmp_path}/masks/4.nii.gz {reason}" in refused(load, tmp_path)


def test_keys_that_only_scans_have_are_refused_elsewhere(load, tmp_path):
    for i in range(10):
        folder = tmp_path / "pictures" / "ab"[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(some((4, 4), 0, 255, np.uint8)).save(folder / f"{i}.png")
        write_nifti(tmp_path / "scans" / "ab"[i % 2] / f"{i}.nii.gz", some((4, 4, 4)))
    why = "the images are no NIfTI or DICOM files"
    found = refused(load, tmp_path / "pictures", spacing=1.0)
    assert found == f"spacing: 1.0 is not allowed; expected 0: {why}"
    found = refused(load, tmp_path / "pictures", window="0..1")
    assert found == f"window: '0..1' is not allowed; expected 'auto': {why}"
    assert "one number of pixels" in refused(load, tmp_path / "pictures", image_size="4x4x4")
    assert "LOW less than HIGH" in refused(load, tmp_path / "scans", window="3..1")
    write_dicom(tmp_path / "dicom" / "a" / "1.dcm", some((4, 4)))
    write_dicom(tmp_path / "dicom" / "b" / "1.dcm", some((4, 4)))
    assert "does not say its spacing" in refused(load, tmp_path / "dicom", spacing=1.0)


@pytest.mark.parametrize(
    ("package", "name"), [("nibabel", "1.nii.gz"), ("pydicom", "1.dcm"), ("nibabel", "case")]
)
def test_without_the_extra_one_line_says_which(tmp_path, monkeypatch, package, name):
    if name == "case":
        write_series(tmp_path / name, some((3, 4, 4)))
    else:
        (tmp_path / name).write_bytes(b"something")
    for module in [m for m in sys.modules if m.partition(".")[0] == package or ".clinic." in m]:
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
    install = "pip install 'fedbn-flower[clinic]'"
    assert (
        str(error.value)
        == f"dataset: {tmp_path / name} is a {kind} file, which needs other packages: {install}"
    )
