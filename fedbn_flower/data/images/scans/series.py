"""Folders with the slices of a DICOM series: which they are, and their volumes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .errors import WrongScan, errors_named
from .names import is_dicom
from .scan import Scan

HEADERS = 2**17
"""Files whose series are remembered."""


def series_folders(files: Iterable[Path], root: Path) -> dict[Path, list[Path]]:
    """Return the folders whose DICOM files are the slices of one series, with these files.

    A slice has a place in the patient, so that radiographs of one series are none. Folders called ``images``
    or ``masks`` hold pictures, and so does the dataset's folder itself.

    Raises
    ------
    UserError
        When such a file cannot be read, or the package for it is not installed.
    """
    by_folder: dict[Path, list[Path]] = {}
    for path in files:
        if path.parent != root and path.parent.name.lower() not in ("images", "masks") and is_dicom(path):
            by_folder.setdefault(path.parent, []).append(path)
    several = {folder: paths for folder, paths in by_folder.items() if len(paths) > 1}
    return {folder: paths for folder, paths in several.items() if _are_one_series(paths)}


def _are_one_series(paths: list[Path]) -> bool:
    found = set()
    for path in paths:
        with errors_named(path):
            stat = path.stat()
            found.add(_series(path, stat.st_mtime_ns, stat.st_size))
        if len(found) > 1 or "" in found:
            return False
    return True


@lru_cache(maxsize=HEADERS)
def _series(path: Path, changed: int, size: int) -> str:
    """Return the number of the series of which a file is a slice; empty if it is none."""
    import pydicom
    from pydicom.errors import InvalidDicomError

    from .dicom import checked

    try:
        header = pydicom.dcmread(
            checked(path),
            stop_before_pixels=True,
            specific_tags=["SeriesInstanceUID", "ImagePositionPatient"],
        )
    except InvalidDicomError:
        raise WrongScan("is not a valid DICOM file" if size else "is empty (0 bytes)") from None
    return str(header.get("SeriesInstanceUID", "")) if header.get("ImagePositionPatient") else ""


def read_series(folder: Path) -> Scan:
    """Return the volume of a series' slices.

    Raises
    ------
    WrongScan
        When a slice has another size, lies elsewhere, or is missing.
    """
    from .dicom import PLACE, attribute, is_in_colour, is_inverted, opened, values_of, volume_of

    paths = sorted(path for path in folder.iterdir() if not path.name.startswith(".") and is_dicom(path))
    slices: list[NDArray] = []
    places = []
    inverted = False
    for path in paths:
        with errors_named(path):
            data = opened(path)
            if is_in_colour(data):
                raise WrongScan("is in colour; expected slices of grey values")
            place = [attribute(data, name) for name in PLACE]
            if None in place:
                raise WrongScan(f"does not say its {PLACE[place.index(None)]}")
            values = values_of(data)
            if len(values) != 1 or (slices and values[0].shape != slices[0].shape):
                sizes = "x".join(map(str, values.shape[len(values) == 1 :]))
                expected = "x".join(map(str, slices[0].shape)) if slices else "one slice"
                raise WrongScan(f"has {sizes} pixels; expected {expected}, as others of its series")
        slices.append(values[0])
        places.append(place)
        inverted = is_inverted(data)
    return volume_of(np.stack(slices), places, [path.name for path in paths], inverted)
