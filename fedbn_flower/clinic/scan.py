"""What was read of a scanner's file, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..core.errors import UserError
from ..data.images.sampling import Grid
from ..data.scans import is_nifti

INSTALL = "pip install 'fedbn-flower[clinic]'"


class WrongScan(ValueError):
    """A file that cannot be used; the message follows its name."""


@contextmanager
def errors_named(path: Path) -> Iterator[None]:
    """Re-raise whatever a reader raises as one line with the file's name.

    Raises
    ------
    UserError
        With the reason.
    """
    kind = "NIfTI" if is_nifti(path) else "DICOM"
    try:
        yield
    except UserError:
        raise
    except ModuleNotFoundError as error:
        if error.name not in ("nibabel", "pydicom"):
            raise
        raise UserError(f"dataset: {path} is a {kind} file, which needs other packages: {INSTALL}") from None
    except WrongScan as error:
        raise UserError(f"dataset: {path} {error}") from error
    except FileNotFoundError:
        raise UserError(f"dataset: {path} is a link to a file that does not exist") from None
    except Exception as error:  # a broken file can raise anything
        if path.is_file() and not path.stat().st_size:
            raise UserError(f"dataset: {path} is empty (0 bytes)") from None
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"dataset: {path} cannot be read as a {kind} file ({reason})") from error


AXES = 3


@dataclass(frozen=True, eq=False)
class Scan:
    """A picture or a volume.

    Parameters
    ----------
    values : NDArray
        (channels, depth, height, width), or (channels, height, width) of a picture; numbers in the units of
        the file, or uint8 in colour.
    grid : Grid
        Where they lie.
    inverted : bool
        Whether low values are white.
    turned : bool
        Whether its axes were put into order, see `oriented`.
    in_colour : bool
        Whether the channels are red, green and blue.
    """

    values: NDArray
    grid: Grid
    inverted: bool = False
    turned: bool = False
    in_colour: bool = False

    @classmethod
    def oriented(cls, values: NDArray, affine: NDArray[np.float64], inverted: bool = False) -> Scan:
        """Return a volume with its axes in the order of a patient's: to the right, the front and the top.

        These directions are those of increasing width, height and depth numbers (RAS+, the closest to the
        scanner's axes; nothing is interpolated). A volume of one slice is a picture.

        Parameters
        ----------
        values : NDArray
            (i, j, k) or (i, j, k, channels).
        affine : NDArray
            4x4, from (i, j, k) to millimetres to the right, front and top.
        inverted : bool
            As of the class.
        """
        from nibabel.affines import voxel_sizes
        from nibabel.orientations import apply_orientation, inv_ornt_aff, io_orientation

        order = io_orientation(affine)
        turned = apply_orientation(values, order)
        affine = affine @ inv_ornt_aff(order, values.shape[:AXES])
        spacing = tuple(float(one) for one in voxel_sizes(affine)[::-1])
        channels = turned.reshape(*turned.shape[:AXES], -1).T  # (channels, k, j, i)
        found = Grid(channels.shape[1:], spacing, affine)
        if channels.shape[1] == 1:
            channels, found = channels[:, 0], Grid(channels.shape[2:], spacing[1:])
        identity = np.stack([np.arange(AXES), np.ones(AXES)], 1)
        return cls(np.ascontiguousarray(channels), found, inverted, not np.array_equal(order, identity))
