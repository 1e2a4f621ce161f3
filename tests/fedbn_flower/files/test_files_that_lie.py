"""Files that do not end, or are larger than they look: each is one line, before memory is gone."""

import gzip
import os
import re
import socket
import zipfile
from io import BytesIO

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from fedbn_flower.core import free_memory
from fedbn_flower.core.errors import UserError
from fedbn_flower.core.free_memory import check_size, opened, regular
from tests.quick import some_quick

SPARE = 2**22
"""Bytes of memory that are left in these tests; the small files among others take less."""


@pytest.fixture
def little_memory(monkeypatch):
    monkeypatch.setattr(free_memory, "available_memory", lambda: SPARE)


def pipe(path):
    os.mkfifo(path)


def zero(path):
    path.symlink_to("/dev/zero")


def bound_socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(path))


NAMES = ("a/1.png", "a/scan", "a/1.dcm", "t.csv", "t.parquet", "metadata.csv", "classes.txt", "x.nii.gz")


@pytest.mark.parametrize(
    ("make", "name"), [*((pipe, name) for name in NAMES), (zero, "a/scan"), (bound_socket, "t.csv")]
)
def test_what_is_no_file_is_named_wherever_it_lies(load, tmp_path, monkeypatch, make, name):
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "d"
    for folder in ("a", "b"):
        (data / folder).mkdir(parents=True)
        for place in range(5):
            Image.new("L", (4, 4), place).save(data / folder / f"{place + 2}.png")
    make(data / name)
    kind = {pipe: "a named pipe", zero: "a device", bound_socket: "a socket"}[make]
    for given in (data, data / name):
        with pytest.raises(UserError, match=rf"^dataset: cannot read .*{name}' is {kind}; expected a file"):
            load(given)


def test_a_link_to_a_file_and_what_is_not_there_are_left_to_their_readers(tmp_path):
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert regular(tmp_path / "b").read_text() == "a"
    assert regular(tmp_path / "c") == tmp_path / "c"


@pytest.mark.parametrize("at_once", [-1, 2**16])
def test_what_is_packed_is_read_as_far_as_memory_bears(tmp_path, little_memory, at_once):
    """Half of the memory, since what is made of the bytes takes as much; in two members."""
    most = SPARE // 2

    def read(size):
        (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(99)) + gzip.compress(bytes(size - 99)))
        with opened(tmp_path / "a.gz", "key") as file:
            return sum(len(chunk) for chunk in iter(lambda: file.read(at_once), b""))

    assert read(most) == most
    with pytest.raises(UserError, match=r"^key: too large: '.*a.gz', unpacked this far, would take"):
        read(most + 1)


@pytest.mark.parametrize("size", [SPARE // 2 - 200, SPARE // 2 + 1])
def test_what_a_zip_file_holds_counts(tmp_path, little_memory, size):
    with zipfile.ZipFile(tmp_path / "a.pt", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a", bytes(size - 2**16))
    if size < SPARE // 2:
        assert check_size(tmp_path / "a.pt", "init") == tmp_path / "a.pt"
        return
    with zipfile.ZipFile(tmp_path / "a.pt", "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("b", bytes(2**16))
    with pytest.raises(UserError, match=r"^init: too large: '.*a.pt' would take"):
        check_size(tmp_path / "a.pt", "init")


def csv_rows(path):
    path.with_suffix(".csv.gz").write_bytes(gzip.compress(b"a,b,label\n" + b"1,2,0\n" * 50_000))


def csv_wide(path):
    path.with_suffix(".csv.gz").write_bytes(gzip.compress(b"a,label" + b"," * 300_000 + b"\n1,0\n"))


def csv_long(path):
    path.with_suffix(".csv.gz").write_bytes(gzip.compress(b"a,label\n1,0\n" + b"x" * SPARE))


def csv_old(path):
    path.with_suffix(".csv").write_bytes(b"a,b,label\r" + b"1,2,0\r" * 50_000)


def parquet_rows(path):
    parquet.write_table(
        pa.table({name: np.zeros(50_000) for name in ("a", "b", "label")}), path.with_suffix(".parquet")
    )


def parquet_lists(path):
    values = pa.array([np.zeros(300_000), [0.0]])
    parquet.write_table(pa.table({"a": values, "label": [0, 1]}), path.with_suffix(".parquet"))


def parquet_words(path):
    words = pa.array(["x" * SPARE, "y"])
    parquet.write_table(
        pa.table({"a": words, "label": [0, 1]}), path.with_suffix(".parquet"), compression="zstd"
    )


ROWS = 12_500
LONG = pa.array(["x" * 1000]).dictionary_encode().take(pa.array(np.zeros(ROWS, int))).cast(pa.string())
LABELS = np.arange(ROWS) % 2


def parquet_repeats(path):
    parquet.write_table(pa.table({"a": LONG, "label": LABELS}), path.with_suffix(".parquet"))


def parquet_pictures(path):
    written = BytesIO()
    Image.new("L", (4, 4)).save(written, "PNG")
    table = {"image": pa.array([written.getvalue()] * ROWS), "a": LONG, "label": LABELS}
    parquet.write_table(pa.table(table), path.with_suffix(".parquet"))


def sheet(path, change):
    """A workbook whose sheet was changed as XML."""
    pytest.importorskip("openpyxl")
    whole, path = BytesIO(), path.with_suffix(".xlsx")
    pd.DataFrame({"a": [1, 2, 3], "label": [0, 1, 0]}).to_excel(whole, index=False)
    with zipfile.ZipFile(whole) as read, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as written:
        for name in read.namelist():
            content = read.read(name)
            written.writestr(name, change(content) if name.endswith("sheet1.xml") else content)


def sheet_packed(path):
    sheet(path, lambda content: content + b" " * SPARE)


def sheet_far(path):
    """One cell in the last column of a late row: all rows get as many."""
    sheet(
        path,
        lambda c: c.replace(b"</sheetData>", b'<row r="999"><c r="XFD999"><v>1</v></c></row></sheetData>'),
    )


def sheet_of_unplaced(path):
    sheet(path, lambda c: c.replace(b"</sheetData>", b"<row>" + b"<c/>" * 50_000 + b"</row></sheetData>"))


@pytest.mark.parametrize(
    "make",
    some_quick(
        [
            *(csv_rows, csv_long, csv_old, parquet_repeats, parquet_pictures, sheet_packed, sheet_far),
            *(csv_wide, parquet_rows, parquet_lists, parquet_words),
            sheet_of_unplaced,
        ],
        range(7),
    ),
)
def test_a_table_larger_than_memory_is_not_read(load, tmp_path, monkeypatch, little_memory, make):
    make(tmp_path / "t")
    for reader in ("read_csv", "read_parquet", "read_excel"):
        monkeypatch.setattr(pd, reader, None)
    monkeypatch.setattr(datasets.Dataset, "from_parquet", None)
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size < SPARE // 10
    with pytest.raises(
        UserError, match=rf"^dataset: too large: .*{path.name}'.* would take .* of memory, of which"
    ) as caught:
        load(path)
    if make in (csv_rows, csv_old, parquet_rows):
        count = int(re.search(r"(\d+) rows of", str(caught.value))[1])
        assert count == pytest.approx(50_000, rel=1e-3)


@pytest.mark.parametrize("saved", [True, False])
def test_what_the_datasets_library_reads_is_no_larger_than_memory(load, tmp_path, little_memory, saved):
    """Saved to disk, and a folder of Parquet files, as the hub has them."""
    folder = tmp_path / "d"
    folder.mkdir()
    if saved:
        datasets.Dataset(pa.table({"a": LONG, "label": LABELS})).save_to_disk(folder)
    else:
        for number in range(2):
            parquet_pictures(folder / f"train-0000{number}-of-00002")
    with pytest.raises(UserError, match=r"^dataset: too large: .*d'?.* would take .* of memory, of which"):
        load(folder)


def class_folders(folder, write, count=5):
    for name in ("a", "b"):
        (folder / name).mkdir()
        for place in range(count):
            write(folder / name / str(place))


def pages(path):
    """Pages that are not large one by one."""
    first, *others = [Image.new("L", (2048, 2048)) for _ in range(5)]
    first.save(path.with_suffix(".tif"), save_all=True, append_images=others, compression="tiff_deflate")


def sparse(path):
    """What is no picture, of a size that no memory has."""
    with path.with_suffix(".png").open("wb") as file:
        file.truncate(2**40)


def nifti(path, shape=(4, 4, 4), offset=352.0):
    pytest.importorskip("fedbn_flower.clinic")
    nibabel = pytest.importorskip("nibabel")
    header = nibabel.Nifti1Header()
    header.set_data_shape(shape)
    header["vox_offset"], header["magic"] = offset, b"n+1"
    path.with_suffix(".nii.gz").write_bytes(gzip.compress(header.binaryblock + bytes(2**10)))


def nifti_of_many_values(path):
    nifti(path, (1000, 1000, 1000))


def nifti_of_a_late_start(path):
    nifti(path, offset=2.0**30)


def dicom(path, deflated=False, **values):
    pytest.importorskip("fedbn_flower.clinic")
    pydicom = pytest.importorskip("pydicom")
    data = pydicom.Dataset()
    data.file_meta = pydicom.dataset.FileMetaDataset()
    data.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.1" + ".99" * deflated
    data.SOPClassUID, data.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.7", pydicom.uid.generate_uid()
    data.Rows = data.Columns = 8
    data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
    data.BitsAllocated = data.BitsStored = 8
    data.HighBit, data.PixelRepresentation, data.PixelData = 7, 0, bytes(64)
    for name, value in values.items():
        setattr(data, name, value)
    pydicom.dcmwrite(path.with_suffix(".dcm"), data, enforce_file_format=True)


def dicom_of_many_pixels(path):
    dicom(path, Rows=60_000, Columns=60_000)


def dicom_deflated(path):
    dicom(path, deflated=True, PixelData=bytes(SPARE))


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (pages, "too large: .* of 2048x2048 pixels on 5 pages would take"),
        (sparse, ".*0.png is not a valid image"),
        (nifti_of_many_values, "too large: .*0.nii.gz of 1000x1000x1000 values would take 7.5 GiB"),
        (nifti_of_a_late_start, "too large: .*0.nii.gz of 4x4x4 values would take 1.0 GiB"),
        (dicom_of_many_pixels, "too large: .*0.dcm of 1x60000x60000 pixels would take 26.8 GiB"),
        (dicom_deflated, "too large: '.*.dcm', unpacked this far, would take"),
    ],
)
def test_a_picture_larger_than_memory_is_not_unpacked(load, tmp_path, little_memory, write, said):
    class_folders(tmp_path, write, 1)
    with pytest.raises(UserError, match=f"^dataset: {said}"):
        load(tmp_path)


def test_deflated_dicom_files_are_read_as_others(load, tmp_path):
    found = []
    for deflated in (False, True):
        (folder := tmp_path / str(deflated)).mkdir()
        class_folders(folder, lambda path, packed=deflated: dicom(path, packed, PixelData=bytes(range(64))))
        found.append(load(folder).train.columns["x"])
    assert found[0].any()
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("name", ["text:{}", "tokens:{}:{}"])
def test_a_text_larger_than_memory_is_not_read(load, tmp_path, little_memory, name):
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.truncate(2**40)
    if "tokens" in name:
        pytest.importorskip("tokenizers")
    with pytest.raises(UserError, match=r"^dataset: too large: '.*a.json' would take 2,048.0 GiB"):
        load(name.format(path, path))


def test_an_archive_called_as_an_array_is_one_line(load, tmp_path):
    for name in ("images", "labels"):
        with (tmp_path / f"train-{name}.npy").open("wb") as file:
            np.savez_compressed(file, np.zeros((4, 4)))
    with pytest.raises(UserError, match=r"^dataset: .* cannot be read \("):
        load(tmp_path)
