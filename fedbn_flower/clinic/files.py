"""Name what is wrong with a scanner's file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..core.errors import UserError
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
