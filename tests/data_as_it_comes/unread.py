"""Files that hold data and are not read: refused by their own names."""

import zipfile
from pathlib import Path

import numpy as np

from .case import Cases, put, text

CASES = Cases()
CONVERT = "convert to NIfTI (.nii.gz), to pictures (a 16-bit PNG keeps all levels) or to NumPy files"
IN_PYTHON = "read it in Python: simulate(data=(x, y, x_test, y_test)), or --dataset FILE.py:FUNCTION"


@CASES.add(f"dataset: 'FOLDER' holds 2 files (2 .mha), which are not read; {CONVERT}")
@CASES.add(
    f"dataset: 'FOLDER/images/1.mha' is a .mha file, which is not read; {CONVERT}",
    name="a volume",
    file="images/1.mha",
)
def volumes_and_their_masks(root: Path) -> None:
    for name in ("images/1.mha", "masks/1.mha"):
        text(root, name)


@CASES.add(f"dataset: 'FOLDER' holds 2 files (1 .mat, 1 .h5), which are not read; {IN_PYTHON}")
def arrays_of_others(root: Path) -> None:
    for name in ("test.mat", "train.h5"):
        text(root, name)


@CASES.add("dataset: 'FOLDER' holds 2 files (2 .heic), which are not read; convert to PNG, TIFF or JPEG")
def pictures_of_another_phone(root: Path) -> None:
    for name in ("a/1.heic", "b/1.heic"):
        text(root, name)


@CASES.add(
    "dataset: 'FOLDER' is not allowed; expected a folder with pictures, tables or NumPy files: it holds "
    "3 files (2 .docx, 1 .pdf)"
)
def documents(root: Path) -> None:
    for name in ("a.docx", "b.docx", "c.pdf"):
        text(root, name)


@CASES.add("dataset: 'FOLDER' holds 1 file (1 .zip), which is not read; unpack it")
def an_archive(root: Path) -> None:
    with zipfile.ZipFile(root / "pictures.zip", "w") as archive:
        archive.writestr("a/1.png", b"")


@CASES.add(f"dataset: 'malignant' holds 5 files (5 .nrrd), which are not read; {CONVERT}")
def scans_beside_pictures(root: Path) -> None:
    put(root, "benign")
    for i in range(5):
        text(root, f"malignant/{i}.nrrd")


@CASES.add(
    "dataset: 'FOLDER' holds 2 files (2 .npy), which are not read; call uint8 images and their labels "
    "train-images.npy and train-labels.npy (or -masks), and test-... for a test set; read other arrays in "
    "Python: simulate(data=(x, y, x_test, y_test)), or --dataset FILE.py:FUNCTION"
)
def arrays_of_other_names(root: Path) -> None:
    for name in ("x.npy", "y.npy"):
        text(root, name)


@CASES.add(
    "dataset: train-images.npy holds float32 (20, 12, 50), not uint8 images; read other arrays in Python: "
    "simulate(data=(x, y, x_test, y_test)), or --dataset FILE.py:FUNCTION"
)
def signals_called_images(root: Path) -> None:
    np.save(root / "train-images.npy", np.zeros((20, 12, 50), np.float32))
    np.save(root / "train-labels.npy", np.arange(20) % 2)
