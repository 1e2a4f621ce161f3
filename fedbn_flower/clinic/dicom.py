"""Read DICOM files with pydicom: pictures, and files of several frames."""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
from numpy.typing import NDArray
from pydicom.errors import InvalidDicomError
from pydicom.filereader import read_file_meta_info
from pydicom.pixels import apply_color_lut, apply_modality_lut
from pydicom.uid import DeflatedExplicitVRLittleEndian

from ..core.free_memory import Bound, check_fits, check_size
from ..data.images.sampling import Grid
from ..data.scans import MARK, PREAMBLE
from .scan import Scan, WrongScan

BEGINNING = 2**14
"""Bytes in which a file says how it is packed."""
LENGTH_ITSELF = 12
"""Bytes of the element that says how long the file's meta information is."""
CHUNK = 2**20
VALUE = 8
"""Bytes of a value, once it is scaled."""
SEGMENTATION = "1.2.840.10008.5.1.4.1.1.66.4"
COLOURS = 3
MOST_APART = 0.1
"""Of the step between slices, by which one may differ from the others."""
TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])
"""DICOM's millimetres are to the left, the back and the top (PS3.3, C.7.6.2.1.1)."""
PLACE = "ImageOrientationPatient", "PixelSpacing", "ImagePositionPatient"
GROUPS = {
    "ImageOrientationPatient": "PlaneOrientationSequence",
    "ImagePositionPatient": "PlanePositionSequence",
    "PixelSpacing": "PixelMeasuresSequence",
    "SliceThickness": "PixelMeasuresSequence",
    "SpacingBetweenSlices": "PixelMeasuresSequence",
    "RescaleSlope": "PixelValueTransformationSequence",
    "RescaleIntercept": "PixelValueTransformationSequence",
}
"""In which functional group enhanced files of several frames have an attribute."""


def opened(path: Path) -> Any:
    """Return a data set with pixels.

    Raises
    ------
    WrongScan
        When it is no DICOM file, or is a segmentation or something without pixels.
    """
    try:
        found = pydicom.dcmread(checked(path))
    except InvalidDicomError:
        empty = "is empty (0 bytes)" if not path.stat().st_size else "is not a valid DICOM file"
        raise WrongScan(empty) from None
    if found.get("SOPClassUID") == SEGMENTATION:
        raise WrongScan("is a DICOM segmentation, which is not read; convert it to NIfTI")
    if "PixelData" not in found:
        raise WrongScan(f"holds no pixels ({found.get('Modality', 'no modality')})")
    return found


def checked(path: Path) -> Path:
    """Return the path of a file that is read as a whole, and unpacked if it is deflated (PS3.5, A.5).

    Raises
    ------
    UserError
        When memory does not hold it.
    """
    check_size(path)
    with path.open("rb") as file:
        if DeflatedExplicitVRLittleEndian.encode() not in file.read(BEGINNING):
            return path
        length = read_file_meta_info(path).FileMetaInformationGroupLength
        file.seek(PREAMBLE + len(MARK) + LENGTH_ITSELF + length)
        inflater, bound, size = zlib.decompressobj(-zlib.MAX_WBITS), Bound(path), 0
        rest = file.read(CHUNK)
        while rest and not inflater.eof:
            size += len(inflater.decompress(rest, CHUNK))
            rest = inflater.unconsumed_tail or file.read(CHUNK)
            bound.check(size)
    return path


def _check_pixels(data: Any) -> None:
    """Compare the pixels that a data set says it has with the memory, before they are unpacked."""
    sizes = [int(data.get(name) or 1) for name in ("NumberOfFrames", "Rows", "Columns", "SamplesPerPixel")]
    needed = math.prod(sizes) * VALUE
    check_fits("dataset", f"{data.filename} of {'x'.join(map(str, sizes[:3]))} pixels", needed)


def attribute(data: Any, name: str, frame: int = 0) -> Any:
    """Return an attribute of a data set, or of its frame; None where it has none."""
    if (value := data.get(name)) is not None:
        return value
    own = (data.get("PerFrameFunctionalGroupsSequence") or [])[frame : frame + 1]
    for group in (*own, *(data.get("SharedFunctionalGroupsSequence") or [])):
        if (sequence := group.get(GROUPS[name])) and (value := sequence[0].get(name)) is not None:
            return value
    return None


def values_of(data: Any) -> NDArray:
    """Return the values in their units: (frames, rows, columns), with three colours (..., 3) as uint8.

    Slope and intercept, or the modality's table, are applied; the window of the file is not.
    """
    _check_pixels(data)
    pixels: NDArray = data.pixel_array
    if data.get("PhotometricInterpretation") == "PALETTE COLOR":
        pixels = apply_color_lut(pixels, data)
    in_colour = pixels.ndim > 2 and pixels.shape[-1] == COLOURS and is_in_colour(data)
    frames = pixels if int(data.get("NumberOfFrames") or 1) > 1 else pixels[None]
    if in_colour:
        return frames if frames.dtype == np.uint8 else (frames >> 8).astype(np.uint8)
    if "RescaleSlope" in data or "ModalityLUTSequence" in data:
        return np.asarray(apply_modality_lut(frames, data))
    slopes = [attribute(data, "RescaleSlope", i) for i in range(len(frames))]
    if None in slopes:
        return frames
    lows = [float(attribute(data, "RescaleIntercept", i) or 0) for i in range(len(frames))]
    scaled = [one * float(slope) + low for one, slope, low in zip(frames, slopes, lows, strict=True)]
    return np.stack(scaled)


def is_in_colour(data: Any) -> bool:
    """Return whether a data set has three values for each pixel, or a palette of colours."""
    has_palette = data.get("PhotometricInterpretation") == "PALETTE COLOR"
    return bool(has_palette or data.get("SamplesPerPixel", 1) == COLOURS)


def is_inverted(data: Any) -> bool:
    """Return whether low values are white."""
    return bool(data.get("PhotometricInterpretation") == "MONOCHROME1")


def read_dicom(path: Path) -> Scan:
    """Return the picture of a file; or its frames as a volume, in their places where each has one.

    Raises
    ------
    WrongScan
        See `opened` and `volume_of`.
    """
    data = opened(path)
    values = values_of(data)
    if is_in_colour(data):
        channels = np.moveaxis(values, -1, 0)
        flat = np.ascontiguousarray(channels[:, 0] if len(values) == 1 else channels)
        return Scan(flat, Grid(flat.shape[1:], _spacing(data, flat.ndim - 1)), in_colour=True)
    if len(values) == 1:
        return Scan(values, Grid(values.shape[1:], _spacing(data, 2)), is_inverted(data))
    places = [[attribute(data, name, frame) for name in PLACE] for frame in range(len(values))]
    if all(one is not None for place in places for one in place) and len({str(p[2]) for p in places}) > 1:
        names = [f"frame {frame + 1}" for frame in range(len(values))]
        return volume_of(values, places, names, is_inverted(data))
    return Scan(values[None], Grid(values.shape, _spacing(data, 3)), is_inverted(data))


def volume_of(slices: NDArray, places: list[list[Any]], names: list[str], inverted: bool) -> Scan:
    """Return the volume of slices, sorted by where they lie (PS3.3, C.7.6.2.1.1).

    Parameters
    ----------
    slices : NDArray
        (slices, rows, columns), in any order.
    places : list
        The orientation, the spacing of rows and columns, and the position of each.
    names : list[str]
        Their names in messages.
    inverted : bool
        Whether low values are white.

    Raises
    ------
    WrongScan
        When they are not parallel, or two lie at one place, or one is missing.
    """
    turns, spacings, positions = (np.array([place[i] for place in places], np.float64) for i in range(3))
    for found, what in ((turns, "orientation"), (spacings, "spacing of pixels")):
        if (other := np.abs(found - found[0]).max(1) > MOST_APART / 10).any():
            raise WrongScan(f"holds slices of different {what}: {names[int(other.argmax())]} has another")
    along_rows, along_columns = turns[0, :3], turns[0, 3:]
    normal = np.cross(along_rows, along_columns)
    order = np.argsort(positions @ normal, kind="stable")
    steps = np.diff(positions[order] @ normal)
    if (same := np.flatnonzero(steps < FLAT)).size:
        one, other = (names[order[int(same[0]) + i]] for i in (0, 1))
        raise WrongScan(f"holds two slices at one place: {one} and {other}")
    usual = float(np.median(steps))
    if (apart := np.flatnonzero(np.abs(steps - usual) > MOST_APART * usual)).size:
        one, other = (names[order[int(apart[0]) + i]] for i in (0, 1))
        gap = f"{one} and {other} lie {steps[apart[0]]:.4g} mm apart, others {usual:.4g}"
        raise WrongScan(f"lacks a slice, or has one of another series: {gap}")
    affine = np.eye(4)
    affine[:3, 0] = along_rows * spacings[0, 1]
    affine[:3, 1] = along_columns * spacings[0, 0]
    affine[:3, 2] = (positions[order[-1]] - positions[order[0]]) / max(1, len(order) - 1)
    affine[:3, 3] = positions[order[0]]
    return Scan.oriented(slices[order].transpose(2, 1, 0), TO_RAS @ affine, inverted)


FLAT = 1e-3
"""Millimetres below which two slices lie at one place."""


def _spacing(data: Any, axes: int) -> tuple[float, ...] | None:
    """Return the millimetres between values, of a volume or of a picture of two axes; None if unsaid."""
    pixels = attribute(data, "PixelSpacing") or data.get("ImagerPixelSpacing")
    between = attribute(data, "SpacingBetweenSlices") or attribute(data, "SliceThickness")
    if not pixels or (axes > len(pixels) and not between):
        return None
    return (*([float(between)] if axes > len(pixels) else []), *map(float, pixels))
