"""Make the volumes of docs/how-to/volumes.md: NIfTI files and DICOM series of three scanners.

    python experiments/make_scans.py data

Nothing in it is real. The three sites see the same kind of body, and write it in their own ways:

- ``north``: NIfTI, voxels of 1 mm, stored to the right, front and top (RAS);
- ``south``: NIfTI, slices 2 mm thick, stored to the left, back and top (LPS), with other contrast;
- ``east``: a DICOM series for each case, slices 2 mm thick, dark where the others are bright.

Written are

- ``data/tumours/SITE/images/000.nii.gz`` (or a folder ``000`` with slices) and
  ``data/tumours/SITE/masks/000.nii.gz``, 1 where the tumour is;
- ``data/screening/scans/SITE-000.nii.gz`` (or a folder) and ``data/screening/labels.csv``: site, image, and
  ``tumour``, 1 where there is one.

It needs the extra ``clinic``. A run on them:

python run_sim.py --dataset data/tumours --spacing 2 --image-size 16x24x24 --num-clients 3
"""

import argparse
import csv
from pathlib import Path

import nibabel
import numpy as np
import pydicom
from numpy.typing import NDArray
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian

SITES = ("north", "south", "east")
SIZES = (40, 40, 28)
"""Millimetres to the right, the front and the top that a scan covers."""
MR_IMAGE = "1.2.840.10008.5.1.4.1.1.4"
ROOT = "1.2.826.0.1.3680043.8.498"


def body(rng: np.random.Generator, tumours: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Brightness about 0 to 1 and a mask, of voxels of 1 mm, (right, front, top).

    An ellipsoid with a darker one in it, and tumours: bright ones with half axes from 4 to 8 mm.
    """
    place = np.stack(np.meshgrid(*(np.arange(size) + 0.5 for size in SIZES), indexing="ij"), -1)
    middle = np.array(SIZES) / 2

    def ellipsoid(centre: NDArray, axes: NDArray) -> NDArray[np.bool_]:
        inside: NDArray[np.bool_] = (((place - centre) / axes) ** 2).sum(-1) <= 1
        return inside

    inside = ellipsoid(middle, middle * rng.uniform(0.85, 0.95, 3))
    light = np.where(inside, 0.5, 0.05)
    light[ellipsoid(middle + rng.normal(0, 1.5, 3), middle * 0.35)] = 0.35
    mask = np.zeros(SIZES, bool)
    for _ in range(tumours):
        mask |= ellipsoid(middle + rng.uniform(-0.5, 0.5, 3) * middle, rng.uniform(4, 8, 3)) & inside
    light[mask] += rng.uniform(0.2, 0.35)
    return light, mask


def seen(light: NDArray[np.float64], site: str, rng: np.random.Generator) -> NDArray[np.int16]:
    """What the site's scanner stores: whole numbers in units of its own."""
    contrast = {"north": light, "south": 0.3 + 0.5 * light, "east": 1.1 - light}[site]
    top = {"north": 1000, "south": 3000, "east": 500}[site]
    noise = {"north": 0.04, "south": 0.05, "east": 0.05}[site]
    return np.rint(top * (contrast + rng.normal(0, noise, light.shape))).clip(0).astype(np.int16)


def thick(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return means of two slices each."""
    mean: NDArray[np.float64] = values.reshape(*values.shape[:2], -1, 2).mean(-1)
    return mean


def save_nifti(path: Path, values: NDArray, site: str) -> None:
    """Write a volume (right, front, top) as the site stores its axes."""
    image = nibabel.Nifti1Image(values, np.diag([1.0, 1, SIZES[2] / values.shape[2], 1]))
    if site == "south":
        flips = np.array([[0, -1], [1, -1], [2, 1]])
        image = image.as_reoriented(flips)
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(image, path)


def save_series(folder: Path, values: NDArray[np.int16], number: str) -> None:
    """Write a volume (right, front, top) as slices: rows go to the back, columns to the left."""
    folder.mkdir(parents=True, exist_ok=True)
    thickness = SIZES[2] / values.shape[2]
    for k in range(values.shape[2]):
        meta = FileMetaDataset()
        meta.MediaStorageSOPClassUID = MR_IMAGE
        meta.MediaStorageSOPInstanceUID = f"{ROOT}.{number}.{k + 1}"
        meta.TransferSyntaxUID = ExplicitVRLittleEndian
        data = Dataset()
        data.file_meta = meta
        data.SOPClassUID, data.SOPInstanceUID = MR_IMAGE, meta.MediaStorageSOPInstanceUID
        data.Modality, data.SeriesInstanceUID = "MR", f"{ROOT}.{number}"
        data.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
        data.ImagePositionPatient = [1.0 - SIZES[0], 1.0 - SIZES[1], k * thickness]
        data.PixelSpacing, data.SliceThickness = [1, 1], thickness
        data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
        pixels = np.ascontiguousarray(values[::-1, ::-1, k].T)
        data.Rows, data.Columns = pixels.shape
        data.BitsAllocated = data.BitsStored = 16
        data.HighBit, data.PixelRepresentation = 15, 1
        data.PixelData = pixels.tobytes()
        pydicom.dcmwrite(folder / f"{k:03}.dcm", data, enforce_file_format=True)


def write_case(
    path: Path, site: str, rng: np.random.Generator, tumours: int, number: str
) -> NDArray[np.bool_]:
    """Write one scan, whose path has no suffix, and return its mask as the site's slices have it."""
    light, mask = body(rng, tumours)
    if site != "north":
        light, mask = thick(light), thick(mask.astype(float)) >= 0.5
    values = seen(light, site, rng)
    if site == "east":
        save_series(path, values, number)
    else:
        save_nifti(path.with_name(f"{path.name}.nii.gz"), values, site)
    return mask


def main() -> None:
    """Write everything; the same files for the same numbers and seed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--scans", type=int, default=30, help="with masks, at each site; twice as many to screen"
    )
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    rows: list[tuple[str, str, int]] = []
    for place, site in enumerate(SITES):
        rng = np.random.default_rng([chosen.seed, place])
        for i in range(chosen.scans):
            folder = chosen.folder / "tumours" / site
            mask = write_case(
                folder / "images" / f"{i:03}", site, rng, rng.integers(1, 4), f"{place + 1}.{i + 1}"
            )
            save_nifti(folder / "masks" / f"{i:03}.nii.gz", mask.astype(np.uint8), site)
        for i in range(2 * chosen.scans):
            name, tumour = f"{site}-{i:03}", int(rng.random() < 0.5)
            write_case(
                chosen.folder / "screening" / "scans" / name, site, rng, tumour, f"{place + 4}.{i + 1}"
            )
            rows.append((site, name, tumour))
    with (chosen.folder / "screening" / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("site", "image", "tumour"), *rows])


if __name__ == "__main__":
    main()
