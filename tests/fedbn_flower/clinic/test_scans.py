"""NIfTI and DICOM files: where their voxels go, in which units, and what is refused."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedbn_flower.clinic.decoding import read_scan
from fedbn_flower.clinic.resampling import Resampling
from fedbn_flower.core.errors import UserError
from fedbn_flower.data import Request
from fedbn_flower.data.images.sampling import Grid
from fedbn_flower.site.inputs import local_task

from .scan_files import nibabel, pydicom, write_dicom, write_nifti, write_series

RNG = np.random.default_rng(0)
FULL = "0..65535"


def some(shape=(5, 4, 3), low=0, high=1000, dtype=np.int16):
    return RNG.integers(low, high, shape).astype(dtype)


# ---- where voxels go


@pytest.mark.parametrize("codes", ["RAS", "LPS", "LAS", "PIR", "SRA", "ASL"])
def test_the_orientation_of_a_file_does_not_matter(tmp_path, codes):
    """A voxel's value is its place in the patient; the file stores its axes in any order."""
    import nibabel.orientations as orientations

    canonical = nibabel.Nifti1Image(some((6, 5, 4)), np.diag([1.0, 2, 3, 1]))
    order = orientations.axcodes2ornt(codes)
    stored = canonical.as_reoriented(orientations.ornt_transform(orientations.axcodes2ornt("RAS"), order))
    assert "".join(nibabel.aff2axcodes(stored.affine)) == codes
    nibabel.save(stored, tmp_path / "1.nii")
    scan = read_scan(tmp_path / "1.nii")
    np.testing.assert_array_equal(scan.values[0], np.asarray(canonical.dataobj).transpose(2, 1, 0))
    assert scan.grid.spacing == (3, 2, 1)
    np.testing.assert_allclose(scan.grid.affine, canonical.affine)
    assert scan.turned == (codes != "RAS")


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 0, 3, 1)])
def test_a_series_is_the_volume_that_lies_there(tmp_path, order):
    """Of axial slices: columns go to the left, rows to the back, so both are turned."""
    volume = some((4, 5, 6))
    folder = write_series(tmp_path / "case", volume, (2.5, 0.5, 0.75), order=order)
    scan = read_scan(folder)
    np.testing.assert_array_equal(scan.values, volume[None, :, ::-1, ::-1])
    assert (scan.grid.shape, scan.grid.spacing, scan.turned) == ((4, 5, 6), (2.5, 0.5, 0.75), True)
    # The voxel that was stored first lies at DICOM's (0, 0, 0), and is now the last of its slice.
    np.testing.assert_allclose(scan.grid.affine @ [5, 4, 0, 1], [0, 0, 0, 1], atol=1e-9)


def test_sagittal_slices_become_the_width(tmp_path):
    volume = some((3, 5, 4))
    for k, pixels in enumerate(volume):
        write_dicom(
            tmp_path / "case" / f"{k}.dcm",
            pixels,
            SeriesInstanceUID="1.2",
            ImageOrientationPatient=[0, 1, 0, 0, 0, -1],  # columns go to the back, rows down
            ImagePositionPatient=[-2.0 * k, 0, 0],  # slices to the right
            PixelSpacing=[1, 1.5],
        )
    scan = read_scan(tmp_path / "case")
    # [slice, row, column] -> [depth from below, height to the front, width to the right]
    np.testing.assert_array_equal(scan.values[0], volume.transpose(1, 2, 0)[::-1, ::-1, :])
    assert scan.grid.spacing == (1, 1.5, 2)


def test_a_series_and_the_nifti_file_of_it_are_the_same(tmp_path):
    volume = some((4, 5, 6))
    of_dicom = read_scan(write_series(tmp_path / "case", volume, (2, 1, 1)))
    lps = np.diag([-1.0, -1, 2, 1])  # of (column, row, slice)
    of_nifti = read_scan(write_nifti(tmp_path / "1.nii.gz", volume.transpose(2, 1, 0), affine=lps))
    np.testing.assert_array_equal(of_dicom.values, of_nifti.values)
    np.testing.assert_allclose(of_dicom.grid.affine, of_nifti.grid.affine)
    assert of_dicom.grid.lies_at(of_nifti.grid)


def test_frames_lie_where_they_say_and_else_in_their_order(tmp_path):
    from pydicom.dataset import Dataset

    frames = some((3, 4, 5), dtype=np.uint16)
    scan = read_scan(write_dicom(tmp_path / "1.dcm", frames, PixelSpacing=[1, 2], SliceThickness=3))
    np.testing.assert_array_equal(scan.values, frames[None])
    assert (scan.grid.spacing, scan.grid.affine) == ((3, 1, 2), None)

    def group(name, **values):
        inner, outer = Dataset(), Dataset()
        for key, value in values.items():
            setattr(inner, key, value)
        setattr(outer, name, [inner])
        return outer

    shared = group("PlaneOrientationSequence", ImageOrientationPatient=[1, 0, 0, 0, 1, 0])
    shared.PixelMeasuresSequence = group("PixelMeasuresSequence", PixelSpacing=[1, 1]).PixelMeasuresSequence
    places = [group("PlanePositionSequence", ImagePositionPatient=[0, 0, z]) for z in (4.0, 0.0, 2.0)]
    for place, slope in zip(places, (1, 2, 3), strict=True):
        of_values = group("PixelValueTransformationSequence", RescaleSlope=slope, RescaleIntercept=-1)
        place.PixelValueTransformationSequence = of_values.PixelValueTransformationSequence
    path = write_dicom(
        tmp_path / "2.dcm",
        frames,
        SharedFunctionalGroupsSequence=[shared],
        PerFrameFunctionalGroupsSequence=places,
    )
    scan = read_scan(path)
    expected = np.stack([frames[1] * 2.0 - 1, frames[2] * 3.0 - 1, frames[0] - 1.0])
    np.testing.assert_array_equal(scan.values[0], expected[:, ::-1, ::-1])
    assert scan.grid.spacing == (2, 1, 1)


def test_a_fourth_axis_is_channels_and_a_single_slice_a_picture(tmp_path):
    times = some((5, 4, 3, 2))
    scan = read_scan(write_nifti(tmp_path / "1.nii", times))
    np.testing.assert_array_equal(scan.values, times.transpose(3, 2, 1, 0))
    for name, flat in (("2.nii", times[..., :1, 0]), ("3.nii", times[..., 0, 0])):
        scan = read_scan(write_nifti(tmp_path / name, flat))
        np.testing.assert_array_equal(scan.values, times[..., 0, 0].T[None])
        assert len(scan.grid.spacing) == 2


# ---- in which units


def test_slope_and_intercept_are_applied_and_the_window_is_in_their_units(load, tmp_path):
    stored = some((4, 4, 3), 0, 2000)
    for name, kind in (("nifti", "a"), ("dicom", "a"), ("nifti", "b")):
        for i in range(3):
            if name == "nifti":
                write_nifti(tmp_path / name / kind / f"{i}.nii.gz", stored, slope=(2.0, -1000.0))
            else:
                units = {"RescaleSlope": 2, "RescaleIntercept": -1000}
                write_series(tmp_path / name / kind / f"case{i}", stored.T, (1, 1, 1), **units)
    (tmp_path / "dicom" / "b").symlink_to(tmp_path / "dicom" / "a")
    hounsfield = stored.T * 2.0 - 1000
    expected = np.rint(np.clip((hounsfield + 500) / 1500, 0, 1) * 65535)
    nifti = load(tmp_path / "nifti", window="-500..1000").train.columns["x"]
    dicom = load(tmp_path / "dicom", window="-500..1000").train.columns["x"]
    assert nifti.dtype == np.uint16
    assert np.abs(nifti[0, 0] - expected).max() <= 1  # of 65535
    assert np.abs(dicom[0, 0] - expected[:, ::-1, ::-1]).max() <= 1


def test_without_a_window_each_scan_goes_from_its_own_percentiles(load, tmp_path):
    scans = [some((8, 8, 8), 0, 1000) * (i + 1) for i in range(10)]
    for i, values in enumerate(scans):
        write_nifti(tmp_path / "ab"[i % 2] / f"{i}.nii", values.astype(np.float32))
    data = load(tmp_path)
    low, high = np.percentile(scans[0], [0.5, 99.5])
    expected = np.clip((scans[0].T - low) / (high - low), 0, 1) * 65535
    np.testing.assert_allclose(data.train.columns["x"][0, 0], expected, atol=1)
    lines = list(map(str, data.notes))
    own = "intensities of each of 10 scans go from its own percentile 0.5 to 99.5"
    assert f"inputs: {own} (guessed; window decides)" in lines
    assert "inputs: the scans have values every 1x1x1 mm" in lines


def test_monochrome1_is_inverted_and_colours_stay(load, tmp_path):
    grey = some((6, 5), 0, 65536, np.uint16)
    for i in range(5):
        write_dicom(tmp_path / "xray" / "a" / f"{i}.dcm", grey)
        write_dicom(tmp_path / "xray" / "b" / f"{i}.dcm", grey, PhotometricInterpretation="MONOCHROME1")
    data = load(tmp_path / "xray", window=FULL)
    x, y = data.train.columns["x"], data.train.columns["y"]
    np.testing.assert_array_equal(x[y == 0][0, 0], grey)
    np.testing.assert_array_equal(x[y == 1][0, 0], 65535 - grey)
    assert "inputs: 5 of 10 scans, of MONOCHROME1, are inverted" in map(str, data.notes)
    colours = some((6, 5, 3), 0, 256, np.uint8)
    for i in range(10):
        write_dicom(tmp_path / "skin" / "ab"[i % 2] / f"{i}.dcm", colours)
    found = load(tmp_path / "skin").train.columns["x"]
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found[0], colours.transpose(2, 0, 1))


# ---- resampling


@pytest.mark.slow
@given(arrays(np.float32, (4, 6), elements=st.floats(0, 1, width=32)))
def test_resampling_keeps_what_is_constant_and_the_range(values):
    sampling = Resampling(size=9, window="0..1")
    found = sampling.image(values[None], Grid((4, 6)), "", False) / 65535
    assert found.shape == (1, 9, 9)
    assert found.min() >= values.min() - 1e-4
    assert found.max() <= values.max() + 1e-4


def test_a_ramp_in_millimetres_is_the_same_ramp_at_another_spacing():
    """Voxel centres lie at (i + 1/2) spacing; linear values stay on their line, but at the borders."""
    place = (np.arange(16) + 0.5) * 1.0
    ramp = np.broadcast_to(place[:, None, None] / 16, (16, 3, 3)).astype(np.float32)
    grid = Grid((16, 3, 3), (1.0, 2.0, 2.0))
    for spacing, size in ((2.0, 8), (0.5, 32)):
        found = Resampling(spacing=f"{spacing}x2x2", window="0..1").image(ramp[None], grid, "", False)
        assert found.shape == (1, size, 3, 3)
        expected = (np.arange(size) + 0.5) * spacing / 16
        np.testing.assert_allclose(found[0, 2:-2, 1, 1] / 65535, expected[2:-2], atol=1e-4)


def test_with_a_spacing_the_size_cuts_or_pads_around_the_centre():
    values = np.full((1, 4, 4, 4), 1, np.float32)
    grid = Grid((4, 4, 4), (2.0, 1.0, 1.0))
    found = Resampling("4x8x2", 1.0, "0..1").image(values, grid, "", False)
    assert found.shape == (1, 4, 8, 2)
    assert (found[0, :, 2:6] == 65535).all()
    assert not found[0, :, :2].any()
    assert not found[0, :, 6:].any()
    mask = Resampling("4x8x2", 1.0).mask(np.full((4, 4, 4), 3, np.uint8), grid, "")
    np.testing.assert_array_equal(mask, np.where(found[0] > 0, 3, 0))


def test_the_nearest_voxel_of_a_mask_is_that_at_its_centre():
    """Two of four voxels have their centres at 1 and 3, in units of the four, which begin there."""
    grid = Grid((4, 1), (1.0, 1.0))
    mask = np.array([[1], [2], [3], [4]], np.uint8)
    assert Resampling(spacing="9x2x1").mask(mask, grid, "").ravel().tolist() == [2, 4]
    assert Resampling(spacing="9x0.5x1").mask(mask, grid, "").ravel().tolist() == [1, 1, 2, 2, 3, 3, 4, 4]


def test_a_mask_goes_where_its_image_goes(load, tmp_path):
    """Bright cubes: after resampling both, mask and image agree but for a voxel at each border."""
    for i in range(6):
        values = np.zeros((20, 16, 12), np.float32)
        values[4 + i : 12 + i, 4:10, 3:9] = 100
        affine = np.diag([-1.0, 1.5, 2.0, 1]) if i % 2 else np.diag([1.0, 1.5, 2.0, 1])
        write_nifti(tmp_path / "images" / f"{i}.nii.gz", values, affine=affine)
        write_nifti(tmp_path / "masks" / f"{i}_seg.nii.gz", (values > 50).astype(np.uint8), affine=affine)
    data = load(tmp_path, spacing=1.5, image_size="16x16x16", window="0..100")
    x, y = data.train.columns["x"], data.train.columns["y"]
    assert (x.shape[1:], y.shape[1:]) == ((1, 16, 16, 16), (16, 16, 16))
    assert (y == (x[:, 0] > 32768)).mean() > 0.99
    assert 200 < y.sum(axis=(1, 2, 3)).min() == pytest.approx(8 * 6 * 6 * 3 / 1.5**3, rel=0.35)
    assert "inputs: they are resampled to 1.5 mm" in map(str, data.notes)
    assert (
        "inputs: the axes of 3 of 6 scans are turned to left to right, back to front and bottom to top"
        in map(str, data.notes)
    )


# ---- by table, by folder, by site


def test_a_table_names_scans_of_any_kind(load, tmp_path):
    volumes = [some((4, 3, 5), 0, 60000, np.uint16) for _ in range(10)]
    names = []
    for i, volume in enumerate(volumes):
        if i % 2:
            write_nifti(tmp_path / "scans" / f"p{i}.nii.gz", volume.transpose(2, 1, 0))
            names.append([f"scans/p{i}.nii.gz", f"p{i}"][i % 4 == 1])
        else:
            write_series(tmp_path / "scans" / f"p{i}", volume[:, ::-1, ::-1])
            names.append(f"scans/p{i}")
    pd.DataFrame({"image": names, "label": [i % 3 for i in range(10)]}).to_csv(tmp_path / "labels.csv")
    data = load(tmp_path, window=FULL)
    x = np.concatenate([data.train.columns["x"], data.test.columns["x"]])
    y = np.concatenate([data.train.columns["y"], data.test.columns["y"]])
    assert str(data.spec) == "1x4x3x5 in 3 classes"
    for volume, label in zip(x, y, strict=True):
        (number,) = (i for i, one in enumerate(volumes) if np.array_equal(one, volume[0]))
        assert number % 3 == label


def test_files_without_a_suffix_and_series_of_sites_are_found(load, tmp_path):
    for site in ("lyon", "turin"):
        for i in range(3):
            for label in ("ill", "well"):
                folder = tmp_path / site / label / f"case{i}"
                write_series(folder, some((3, 4, 4)), names="1.2.840.{}" if i % 2 else "IM{}")
                (folder / "DICOMDIR").write_bytes(b"\0" * 128 + b"DICM")
    data = load(tmp_path, group_column="folder")
    assert str(data.spec) == "1x3x4x4 in 2 classes"
    assert sorted({*data.train.groups}) == ["lyon", "turin"]
    assert len(data.train) + len(data.test) == 12
    assert data.class_names == ("ill", "well")


@pytest.mark.slow
def test_a_changed_slice_is_decoded_anew(load, tmp_path):
    for i in range(3):
        write_series(tmp_path / "a" / f"case{i}", some((3, 4, 4)))
        write_series(tmp_path / "b" / f"case{i}", some((3, 4, 4)))
    first = load(tmp_path).digest
    assert load(tmp_path).digest == first
    write_series(tmp_path / "a" / "case0", some((3, 4, 4)))
    assert load(tmp_path).digest != first


def test_scans_of_another_spacing_have_another_name_in_the_cache():
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
