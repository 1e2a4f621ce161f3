"""Read a scanner's file, whatever it is."""

from pathlib import Path

from ..data.scans import is_nifti
from .files import errors_named
from .scan import Scan


def read_scan(path: Path) -> Scan:
    """Read a NIfTI file, a DICOM file, or a folder with the slices of one DICOM series.

    Raises
    ------
    UserError
        When it cannot be read, or cannot be used; it names the file. Without the packages of the extra
        ``clinic``, it says how to install them.
    """
    with errors_named(path):
        if is_nifti(path):
            from .nifti import read_nifti

            return read_nifti(path)
        from .dicom import read_dicom
        from .series import read_series

        return read_series(path) if path.is_dir() else read_dicom(path)
