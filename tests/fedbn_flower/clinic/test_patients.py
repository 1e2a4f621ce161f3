"""Exports as scanners write them: one volume of a patient, and no patient on both sides of a split."""

import numpy as np
import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.job.group_sides import of_groups, sides_of
from fedbn_flower.job.inputs import inputs_of
from tests.quick import diagonal_quick

from .scan_files import write_dicom, write_series

RNG = np.random.default_rng(0)


def some(*shape):
    return RNG.integers(0, 1000, shape).astype(np.int16)


def write_patient(folder, number, series=True, **phases):
    """Four slices, a scout of two, a page of doses and a report; ``phases``: slices of further series."""
    who = {"PatientID": f"P{number}", "StudyInstanceUID": f"1.{number}"}
    own = (lambda name: folder / name) if series else (lambda name: folder)
    for k, (name, slices) in enumerate({"main": 4, "scout": 2, **phases}.items()):
        write_series(
            own(name), some(slices, 4, 4), series=f"1.{number}.{k}", names=f"{name}-{{}}.dcm",
            SeriesDescription=name, **who,
        )  # fmt: skip
    write_dicom(own("dose") / "page.dcm", some(9, 9), SeriesInstanceUID=f"1.{number}.8", **who)
    report = write_dicom(own("report") / "report.dcm", some(2, 2), SeriesInstanceUID=f"1.{number}.9", **who)
    without_pixels(report)


def without_pixels(path):
    import pydicom

    data = pydicom.dcmread(path)
    del data.PixelData, data.Rows, data.Columns
    data.Modality = "SR"
    data.save_as(path)


@pytest.mark.parametrize("series", [False, True], ids=["one folder", "a folder for each series"])
def test_of_a_patient_the_largest_series_is_read_and_what_is_not_is_said(load, tmp_path, series):
    for i in range(5):
        write_patient(tmp_path / "ab"[i % 2] / f"patient-{i}", i, series, **({"late": 3} if i == 3 else {}))
        if series:  # a folder of its own that holds nothing to learn from
            (tmp_path / "ab"[i % 2] / f"patient-{i}/report/report.dcm").unlink()
    found = load(tmp_path)
    assert len(found.train) + len(found.test) == 5
    assert found.train.columns["x"].shape[1:] == (1, 4, 4, 4)
    (left,) = [note.text for note in found.notes if note.row == "left out"]
    if series:  # 5 scouts and pages, and the late phase, a folder each
        assert left.startswith("11 DICOM files of other series, or without a picture, in ")
    else:  # two slices of a scout, a page and a report of each, three of the late phase
        assert left.startswith("23 DICOM files of other series, or without a picture, in ")


@pytest.mark.parametrize("series", [False, True])
def test_two_phases_of_one_size_are_a_line_that_names_folder_and_series(load, tmp_path, series):
    for i in range(5):
        folder = tmp_path / "ab"[i % 2] / f"patient-{i}"
        write_patient(folder, i, series, **({"venous": 4} if i == 4 else {}))
        if series:
            (folder / "report/report.dcm").unlink()
    line = r"dataset: .*a/patient-4 holds 2 series of 4 slices each \('main' and 'venous'\); expected one"
    with pytest.raises(UserError, match=line):
        load(tmp_path)


def flat(root, i, k):
    return root / "ab"[i % 2] / f"{i}-{k}.dcm"


def in_both_classes(root, i, k):
    return root / "ab"[k % 2] / f"{i}-{k}.dcm"


def sites(root, i, k):
    return root / f"site-{i % 3}" / "ab"[k % 2] / f"{i}-{k}.dcm"


@pytest.mark.parametrize(
    ("layout", "known_by", "keys"),
    diagonal_quick(
        [flat, in_both_classes, sites],
        ["PatientID", "StudyInstanceUID"],
        [{}, {"val_fraction": 0.2}, {"folds": 3, "fold": 2}],
    ),
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_no_patient_is_on_both_sides_nor_at_two_clients(configured, tmp_path, layout, known_by, keys):
    for i in range(6):
        for k in range(2):
            write_dicom(layout(tmp_path / "data", i, k), some(4, 4), **{known_by: f"1.{i}"})
    inputs = inputs_of(
        configured(dataset=str(tmp_path / "data"), partition="iid", num_clients=2, eval_data="local", **keys)
    )
    train, validation, test = sides_of(inputs)
    units, of_test = inputs.dataset.train.units, inputs.dataset.test.units
    found = [{*units[train]}, {*units[validation]}, {*of_test[test]}]
    assert sum(map(len, found)) == len(set().union(*found)) == 6
    assert sum(map(len, (train, validation, test))) == 12
    shares = inputs.partitions.train
    assert not {*units[shares[0]]} & {*units[shares[1]]}
    (note,) = [one.text for one in of_groups(inputs, sides_of(inputs)) if "groups" in one.text]
    assert note.startswith("groups: 6 values of 'PatientID', none on both sides")


def test_patients_of_single_pictures_are_divided_as_before(load, tmp_path):
    for i in range(10):
        write_dicom(tmp_path / "one" / "ab"[i % 2] / f"{i:02}.dcm", some(4, 4), PatientID=str(i))
        write_dicom(tmp_path / "other" / "ab"[i % 2] / f"{i:02}.dcm", some(4, 4))
    one, other = (load(tmp_path / name) for name in ("one", "other"))
    assert one.train.units is other.train.units is None
    assert [*one.test.columns["y"]] == [*other.test.columns["y"]]


def test_a_table_keeps_them_together_too_and_a_key_decides_otherwise(load, tmp_path):
    lines = ["image,label,ward"]
    for i in range(5):
        for k in range(3):
            write_dicom(tmp_path / f"{i}-{k}.dcm", some(4, 4), PatientID=str(i))
            lines.append(f"{i}-{k}.dcm,{'yn'[i % 2]},{k}")
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    found = load(tmp_path)
    assert len(found.test) == 3
    assert not {*found.train.units} & {*found.test.units}
    stated = load(tmp_path, unit_column="ward", unit_key="dp-unit")
    assert len({*stated.train.units}) == 3
