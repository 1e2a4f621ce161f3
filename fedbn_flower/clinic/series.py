"""Folders with the slices of a DICOM series: which they are, and their volumes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.errors import UserError
from ..data.scans import is_dicom, is_dicom_scan
from .scan import Scan, WrongScan, errors_named

HEADERS = 2**17
"""Files whose headers are remembered."""
TAGS = [
    *("PatientID", "StudyInstanceUID", "SeriesInstanceUID", "SeriesDescription"),
    *("NumberOfFrames", "Rows", "ImagePositionPatient"),
]


class Header(NamedTuple):
    """What a DICOM file says of where it belongs; empty texts where it does not."""

    patient: str = ""
    study: str = ""
    series: str = ""
    description: str = ""
    frames: int = 0
    """The number of its pictures, 0 of a report."""
    in_place: bool = False
    """Whether it says where in the patient it lies, or has several frames."""

    @property
    def whose(self) -> str:
        """The patient, or else the study, that it is of."""
        return self.patient or self.study


class Slices(NamedTuple):
    """The files of a folder's largest series, those of its others, and reports."""

    taken: list[Path]
    left: list[Path]


def series_folders(files: Iterable[Path], root: Path) -> tuple[dict[Path, list[Path]], list[Path]]:
    """Return the folders of DICOM files that are slices of a patient, with those of the largest series.

    A slice has a place in the patient, so that radiographs of one series are none. Folders called ``images``
    or ``masks`` hold pictures, and so does the dataset's folder itself. The second list has the files of such
    folders that are left out: scouts, other phases, reports.

    Raises
    ------
    UserError
        When such a file cannot be read, or the package for it is not installed; when no series is the
        largest.
    """
    by_folder: dict[Path, list[Path]] = {}
    for path in files:
        if path.parent != root and path.parent.name.lower() not in ("images", "masks"):
            by_folder.setdefault(path.parent, []).append(path)
    found, left_out = {}, []
    for folder, paths in by_folder.items():
        if len(paths) > 1 and (slices := _slices_of(paths)):
            found[folder] = slices.taken
            left_out += slices.left
    return found, left_out


def _slices_of(paths: Sequence[Path]) -> Slices | None:
    """Return the slices of one patient's files; None where the files are pictures of their own."""
    headers = {path: header_of(path) for path in paths}
    by_series: dict[str, list[Path]] = {}
    for path, header in headers.items():
        if header.frames:
            by_series.setdefault(header.series, []).append(path)
    if not by_series or len({headers[path].whose for path in headers if headers[path].frames}) > 1:
        return None
    taken = _largest([*by_series.values()], headers, paths[0].parent)
    several = sum(headers[path].frames for path in taken) > 1
    if not several or not all(headers[path].in_place for path in taken):
        return None
    return Slices(taken, [path for path in paths if path not in taken])


def _largest(several: Sequence[list[Path]], headers: Mapping[Path, Header], folder: Path) -> list[Path]:
    """Return the series with most slices.

    Raises
    ------
    UserError
        When two have as many, unless these are single pictures.
    """
    sizes = [sum(headers[path].frames for path in paths) for paths in several]
    most = max(sizes)
    best = [paths for paths, size in zip(several, sizes, strict=True) if size == most]
    if len(best) > 1 and most > 1 and all(headers[paths[0]].in_place for paths in best):
        first = [headers[paths[0]] for paths in best]
        names = " and ".join(sorted(repr(one.description or one.series) for one in first)[:2])
        raise UserError(
            f"dataset: {folder} holds {len(best)} series of {most} slices each ({names}); expected one that "
            "is the largest: leave one there"
        )
    return best[0]


def largest_of_studies(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Return the pictures without the smaller series of a study that has a volume, and those left out.

    Of pictures and volumes in folders of their own, such as ``PATIENT/STUDY/SERIES``.

    Raises
    ------
    UserError
        When two series of a study have as many slices.
    """
    headers = {path: header_of_scan(path) for path in paths if is_dicom_scan(path)}
    studies: dict[str, list[Path]] = {}
    for path, header in headers.items():
        if header.study:
            studies.setdefault(header.study, []).append(path)
    left = []
    for of_study in studies.values():
        several = len({headers[path].series for path in of_study}) > 1
        if several and max(headers[path].frames for path in of_study) > 1:
            folder = Path(os.path.commonpath([path.parent for path in of_study]))
            taken = _largest([[path] for path in of_study], headers, folder)
            left += [path for path in of_study if path not in taken]
    unused = {*left}
    return [path for path in paths if path not in unused], left


def header_of_scan(path: Path) -> Header:
    """Return the header of a DICOM file; of a series that of a slice, with the number of all its slices."""
    if not path.is_dir():
        return header_of(path)
    taken = _taken(path)
    return header_of(taken[0])._replace(frames=sum(header_of(one).frames for one in taken))


def patients_of(paths: Sequence[Path]) -> NDArray[np.str_] | None:
    """Return the patient, or else the study, of each picture, (N,); None unless one has several.

    Whatever else is among the pictures is on its own.
    """
    whose = [(is_dicom_scan(path) and header_of_scan(path).whose) or f"/{path}" for path in paths]
    return np.array(whose, np.str_) if len({*whose}) < len({*paths}) else None


def header_of(path: Path) -> Header:
    """Return the header of a DICOM file.

    Raises
    ------
    UserError
        When it cannot be read, or the package for it is not installed.
    """
    with errors_named(path):
        stat = path.stat()
        return _header(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=HEADERS)
def _header(path: Path, changed: int, size: int) -> Header:
    import pydicom
    from pydicom.errors import InvalidDicomError

    from .dicom import checked

    try:
        header = pydicom.dcmread(checked(path), stop_before_pixels=True, specific_tags=TAGS)
    except InvalidDicomError:
        raise WrongScan("is not a valid DICOM file" if size else "is empty (0 bytes)") from None
    frames = int(header.get("NumberOfFrames") or 1) if header.get("Rows") else 0
    patient, study, series, description = (str(header.get(tag) or "") for tag in TAGS[:4])
    in_place = frames > 1 or bool(header.get("ImagePositionPatient"))
    return Header(patient, study, series, description, frames, in_place)


def _taken(folder: Path) -> list[Path]:
    """Return the slices of a folder that stands for a series."""
    paths = sorted(path for path in folder.iterdir() if not path.name.startswith(".") and is_dicom(path))
    slices = _slices_of(paths) if len(paths) > 1 else None
    return slices.taken if slices else paths


def read_series(folder: Path) -> Scan:
    """Return the volume of a folder's largest series.

    Raises
    ------
    WrongScan
        When a slice has another size, lies elsewhere, or is missing.
    """
    from .dicom import PLACE, attribute, is_in_colour, is_inverted, opened, read_dicom, values_of, volume_of

    paths = _taken(folder)
    if len(paths) == 1:
        return read_dicom(paths[0])
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
