"""Tell files of scanners by their names, or by what they begin with, and name what is wrong with them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..core.errors import UserError

INSTALL = "pip install 'fedbn-flower[medical]'"
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
