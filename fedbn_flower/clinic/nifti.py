"""Read NIfTI files with nibabel."""

import math
from pathlib import Path

import nibabel
import numpy as np

from ..core.free_memory import check_fits, opened
from .scan import AXES, Scan, WrongScan

VALUE = 8
"""Bytes of a value, once it is scaled."""


def read_nifti(path: Path) -> Scan:
    """Return a volume in the units of the file: its slope and intercept are applied.

    Values along a fourth axis, such as times or sequences, are channels.

    Raises
    ------
    WrongScan
        For other shapes, colours, or values that are not finite.
    """
    _check_fits(path)
    image = nibabel.load(path)
    values = np.asanyarray(image.dataobj)
    if values.dtype.kind not in "iuf":
        raise WrongScan(f"holds values of type {values.dtype}; expected one number for each voxel")
    if not 2 <= values.ndim <= AXES + 1 or not values.size:
        raise WrongScan(f"has the shape {values.shape}; expected two to four axes")
    if not np.isfinite(values).all():
        raise WrongScan(
            "holds values that are not finite; expected numbers, as nibabel with numpy.nan_to_num"
        )
    if values.ndim < AXES:
        values = values[..., None]
    return Scan.oriented(values, np.asarray(image.affine, np.float64))


def _check_fits(path: Path) -> None:
    """Compare what a file says of its size with the memory, before nibabel reads as much.

    Raises
    ------
    UserError
        When its values, or what stands before them, do not fit.
    """
    with opened(path) as file:
        block = file.read(nibabel.Nifti2Header.sizeof_hdr)
    for kind in (nibabel.Nifti1Header, nibabel.Nifti2Header):
        if len(block) >= kind.sizeof_hdr and kind.may_contain_header(block):
            header = kind(block[: kind.sizeof_hdr], check=False)
            needed = header.get_data_offset() + math.prod(header.get_data_shape()) * VALUE
            check_fits("dataset", f"{path} of {'x'.join(map(str, header.get_data_shape()))} values", needed)
