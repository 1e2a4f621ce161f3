"""Read files of scanners, whatever they are, and decode them to images and masks, as a run's keys say."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients.problems.segmentation import VOID

from ..core.errors import UserError
from ..core.notes import Note
from ..data.float32 import as_bytes
from ..data.images.sampling import AUTO, Grid, Sampling
from ..data.scans import is_nifti, other_size
from .resampling import PERCENTILES, Resampling
from .scan import Scan, errors_named


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


IN_COLOUR = "0..255"
"""The window of scans in colour."""


class Scans:
    """A `ScanDecoder`.

    Images of grey values are uint16, from black to white of the window; those in colour are uint8.

    Parameters
    ----------
    sampling : Sampling
        Of images, or of masks.
    """

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = Resampling(sampling.size, sampling.spacing, sampling.window)
        self.channels = 0
        """Of scans without colour."""
        self.counts: Counter[str] = Counter()
        self.spacings: list[tuple[float, ...]] = []
        """Of each scan that says its own."""

    def image(self, path: Path, name: str) -> tuple[NDArray, Grid]:
        """Return an image and where its values lay."""
        scan = read_scan(path)
        pixels: NDArray
        if scan.in_colour:
            plain = replace(self.sampling, window=IN_COLOUR)
            pixels = (plain.image(scan.values, scan.grid, name, False) >> 8).astype(np.uint8)
        else:
            self.channels = self.channels or len(scan.values)
            if len(scan.values) != self.channels:
                found = f"{name} has {len(scan.values)}, others {self.channels}"
                raise UserError(f"dataset: the scans differ in their number of channels: {found}")
            pixels = self.sampling.image(scan.values, scan.grid, name, scan.inverted)
        self.counts.update({"scans": 1, "turned": scan.turned, "inverted": scan.inverted})
        if scan.grid.spacing:
            self.spacings.append(scan.grid.spacing)
        return pixels, scan.grid

    def mask(self, path: Path, name: str, grid: Grid) -> NDArray[np.uint8]:
        """Return a mask, resampled as its image."""
        scan = read_scan(path)
        if len(scan.values) != 1:
            raise UserError(f"dataset: the mask {name} has {len(scan.values)} channels; expected one")
        values = scan.values[0]
        if values.shape != grid.shape:
            raise other_size(name, values.shape, grid.shape)
        if not scan.grid.lies_at(grid):
            raise UserError(f"dataset: the mask {name} lies elsewhere in the patient than its image")
        if (whole := as_bytes(values)) is None:
            held = f"values from {values.min():g} to {values.max():g}"
            raise UserError(f"dataset: the mask {name} holds {held}; expected whole numbers, 0 to {VOID}")
        return self.sampling.mask(whole, grid, name)

    def notes(self) -> list[Note]:
        """Return notes on intensities and spacings, with the keys that decide them where they are guessed."""
        scans, turned, inverted = (self.counts[kind] for kind in ("scans", "turned", "inverted"))
        window, spacing = self.sampling.window, self.sampling.spacing
        if window == AUTO:
            low, high = PERCENTILES
            own = f"intensities of each of {scans} scans go from its own percentile {low:g} to {high:g}"
            notes = [Note("inputs", own, "window")]
        else:
            notes = [Note("inputs", f"intensities below and above {window} are cut off")]
        kinds = sorted({tuple(round(length, 2) for length in lengths) for lengths in self.spacings})
        shown = [f"{'x'.join(f'{length:g}' for length in lengths)} mm" for lengths in kinds]
        if len(kinds) == 1:
            notes.append(Note("inputs", f"the scans have values every {shown[0]}"))
        elif kinds:
            several = f"the scans have {len(kinds)} spacings, from {shown[0]} to {shown[-1]}"
            notes.append(Note("inputs", several, "" if self.sampling.is_resampled else "spacing"))
        if self.sampling.is_resampled:
            notes.append(Note("inputs", f"they are resampled to {spacing} mm"))
        if turned:
            ways = "left to right, back to front and bottom to top"
            notes.append(Note("inputs", f"the axes of {turned} of {scans} scans are turned to {ways}"))
        if inverted:
            notes.append(Note("inputs", f"{inverted} of {scans} scans, of MONOCHROME1, are inverted"))
        return notes
