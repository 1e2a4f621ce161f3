"""NIfTI and DICOM files: pictures and volumes of scanners, with spacing, orientation and units."""
