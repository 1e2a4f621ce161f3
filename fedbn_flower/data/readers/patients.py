"""Whose a picture is: what is known of it, and what its name suggests."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from numpy.typing import NDArray

from ..dataset import Request
from ..images.scans.series import patients_of
from ..notes import Note
from ..splits.groups import PATIENT, groups_of_paths
from .picture_doubts import of_patients


class Whose(NamedTuple):
    """The group of each picture, (N,), or None where each is on its own; by what, and notes."""

    groups: NDArray | None
    by: str
    notes: list[Note]


def whose(request: Request, paths: Sequence[Path], root: Path, names: Sequence[str] = ()) -> Whose:
    """Return which pictures stay together: as the run says, or else those of one patient of DICOM files.

    Without either there is a note where the ``names``, by default the paths below ``root``, look like it.

    Raises
    ------
    UserError
        When a pattern does not fit a path, or a DICOM file cannot be read.
    """
    if request.unit_column:
        groups = groups_of_paths(request.unit_key, request.unit_pattern, paths, root)
        return Whose(groups, request.unit_pattern, [])
    groups = patients_of(paths)
    if groups is not None:
        return Whose(groups, PATIENT, [])
    return Whose(None, "", of_patients(names or [path.relative_to(root).as_posix() for path in paths]))
