"""Files of scanners: how they are told from others, and what reads them, which an annex brings."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .. import annexes
from ..core.errors import UserError
from ..core.notes import Note
from .images.sampling import Grid, Sampling

NIFTI = (".nii", ".nii.gz")
DICOM = (".dcm", ".dicom", ".ima")
SUFFIXES = (*NIFTI, *DICOM)
LISTING = "DICOMDIR"
"""A file that names others, and is a DICOM file itself."""
MARK, PREAMBLE = b"DICM", 128
"""What a DICOM file has after so many bytes."""


def is_nifti(path: Path) -> bool:
    """Return whether a path has the suffix of a NIfTI file."""
    return path.name.lower().endswith(NIFTI)


def is_dicom(path: Path) -> bool:
    """Return whether a path has the suffix of a DICOM file; or none, or a number as in a UID, and is one."""
    if path.suffix.lower() in DICOM:
        return True
    may_be = not path.suffix.lstrip(".").strip("0123456789") and path.name.upper() != LISTING
    return may_be and _is_marked(path)


def is_scan(path: Path) -> bool:
    """Return whether a path is a NIfTI file, a DICOM file, or the folder of a series, as a walk has them."""
    return is_nifti(path) or path.is_dir() or is_dicom(path)


def has_suffix(name: str) -> bool:
    """Return whether a name ends as that of a NIfTI or DICOM file."""
    return name.lower().endswith(SUFFIXES)


def stem_of(path: Path) -> str:
    """Return the name without a scan's suffix: ``1`` of ``1.nii.gz``; of a folder, or a UID, all of it."""
    name = path.name
    found = next((suffix for suffix in sorted(SUFFIXES, key=len)[::-1] if name.lower().endswith(suffix)), "")
    return name[: len(name) - len(found)]


def _is_marked(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(PREAMBLE + len(MARK))[PREAMBLE:] == MARK
    except OSError:  # whoever reads it says so
        return False


def is_dicom_scan(path: Path) -> bool:
    """Return whether a picture is a DICOM file or the folder of a series, as a walk has them."""
    return path.is_dir() or is_dicom(path)


class ScanDecoder(Protocol):
    """Decodes scans as a run's keys say, and remembers what `notes` tell."""

    def image(self, path: Path, name: str) -> tuple[NDArray, Grid]:
        """Return the image of a file with that name in messages, uint8 or uint16, and where its values lay.

        It is (channels, height, width), or (channels, depth, height, width) of a volume.

        Raises
        ------
        UserError
            When it cannot be read, or does not fit the keys or those before.
        """
        ...

    def mask(self, path: Path, name: str, grid: Grid) -> NDArray[np.uint8]:
        """Return a mask, ([depth], height, width), resampled as its image, whose values lay there.

        Raises
        ------
        UserError
            When it cannot be read, or does not fit its image.
        """
        ...

    def notes(self) -> list[Note]:
        """Return what was done with the images, and what their spacing is."""
        ...


def scan_decoder(path: Path, sampling: Sampling) -> ScanDecoder:
    """Return what decodes a file, and others.

    Raises
    ------
    UserError
        When the annex is not there; so do all that follow.
    """
    decoder: ScanDecoder = _reader("decoder", path)(sampling)
    return decoder


def series_folders(files: Iterable[Path], root: Path) -> tuple[dict[Path, list[Path]], list[Path]]:
    """Return the folders that stand for a DICOM series, with its slices, and the files left out of them."""
    dicom = [path for path in files if is_dicom(path)]
    return _reader("series", dicom[0])(dicom, root) if dicom else ({}, [])


def largest_of_studies(paths: Sequence[Path]) -> tuple[Sequence[Path], list[Path]]:
    """Return the pictures without the smaller series of a study that has a volume, and those left out."""
    first = next(filter(is_dicom_scan, paths), None)
    return _reader("studies", first)(paths) if first else (paths, [])


def patients_of(paths: Sequence[Path]) -> NDArray[np.str_] | None:
    """Return the patient, or else the study, of each DICOM picture, (N,); None unless one has several.

    Whatever else is among the pictures is on its own.
    """
    first = next(filter(is_dicom_scan, paths), None)
    return _reader("patients", first)(paths) if first else None


def _reader(name: str, path: Path) -> Any:
    return annexes.load("readers", name, f"dataset: {path}")


def other_size(name: str, shape: tuple[int, ...], of_image: tuple[int, ...]) -> UserError:
    """Return the error for a mask of another size than its image."""
    found, expected = ("x".join(map(str, sizes)) for sizes in (shape, of_image))
    return UserError(f"dataset: the mask {name} has {found}, its image {expected} pixels; expected the same")
