"""NIfTI and DICOM files: pictures and volumes of scanners, with spacing, orientation and units."""

from .files import has_suffix, is_scan, stem_of
from .reading import read_scan
from .sampling import Grid, Sampling
from .scan import Scan

__all__ = ["Grid", "Sampling", "Scan", "has_suffix", "is_scan", "read_scan", "stem_of"]
