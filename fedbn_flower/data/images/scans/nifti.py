"""Read NIfTI files with nibabel."""

from pathlib import Path

import nibabel
import numpy as np

from .errors import WrongScan
from .scan import AXES, Scan


def read_nifti(path: Path) -> Scan:
    """Return a volume in the units of the file: its slope and intercept are applied.

    Values along a fourth axis, such as times or sequences, are channels.

    Raises
    ------
    WrongScan
        For other shapes, colours, or values that are not finite.
    """
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
