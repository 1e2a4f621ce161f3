"""Write small NIfTI and DICOM files."""

import numpy as np
import pytest

nibabel = pytest.importorskip("nibabel", reason="needs nibabel, of the extra clinic")
pydicom = pytest.importorskip("pydicom", reason="needs pydicom, of the extra clinic")
CT = "1.2.840.10008.5.1.4.1.1.2"


def write_nifti(path, values, spacing=(1, 1, 1), affine=None, slope=None):
    """Values (i, j, k), with a slope and an intercept of the file if given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = nibabel.Nifti1Image(values, np.diag([*spacing, 1.0]) if affine is None else affine)
    if slope:
        image.header.set_slope_inter(*slope)
    nibabel.save(image, path)
    return path


def write_dicom(path, pixels, **attributes):
    """One picture (rows, columns), or several frames, of whole numbers; further attributes by name."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, generate_uid

    path.parent.mkdir(parents=True, exist_ok=True)
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = CT
    meta.MediaStorageSOPInstanceUID = generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data = Dataset()
    data.file_meta = meta
    data.SOPClassUID, data.SOPInstanceUID = CT, meta.MediaStorageSOPInstanceUID
    data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
    if pixels.dtype == np.uint8 and pixels.ndim == 3 and pixels.shape[-1] == 3:
        data.SamplesPerPixel, data.PhotometricInterpretation, data.PlanarConfiguration = 3, "RGB", 0
    elif pixels.ndim == 3:
        data.NumberOfFrames = len(pixels)
    data.Rows, data.Columns = pixels.shape[-2:] if data.SamplesPerPixel == 1 else pixels.shape[:2]
    data.BitsAllocated = data.BitsStored = 8 * pixels.dtype.itemsize
    data.HighBit = data.BitsStored - 1
    data.PixelRepresentation = int(pixels.dtype.kind == "i")
    data.PixelData = pixels.tobytes()
    for name, value in attributes.items():
        setattr(data, name, value)
    data.save_as(path, enforce_file_format=True)
    return path


def write_series(folder, volume, spacing=(2.0, 1.0, 1.0), series="1.2.3", names="{}.dcm", order=None, **more):
    """A volume (slices, rows, columns): rows go to the back, columns to the left, slices up."""
    for k in order or range(len(volume)):
        place = {
            "SeriesInstanceUID": series,
            "ImageOrientationPatient": [1, 0, 0, 0, 1, 0],
            "ImagePositionPatient": [0, 0, k * spacing[0]],
            "PixelSpacing": list(spacing[1:]),
        }
        write_dicom(folder / names.format(k), volume[k], **place | more)
    return folder
