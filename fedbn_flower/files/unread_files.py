"""Name what a folder holds that is not read, and say what is."""

from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

from ..core.errors import UserError, not_allowed
from ..data.dataset import Request
from .decoding import is_image
from .walk import Walk

MEDICAL = (".nrrd", ".mha", ".mhd", ".mgz", ".svs", ".ndpi")
PICTURES = (".heic", ".heif", ".avif", ".jp2", ".exr", ".raw", ".dng", ".nef", ".cr2", ".arw", ".psd", ".svg")
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".7z", ".rar", ".gz", ".bz2", ".xz")
ARRAYS = (".h5", ".hdf5", ".mat", ".npz", ".pt", ".pth", ".pkl", ".zarr", ".tfrecord", ".mp4", ".avi", ".wav")
OF_DATASETS = (".parquet", ".arrow")
"""Suffixes of files that are read by the `datasets` library, whatever lies with them."""
OF_DATASETS_ALONE = (".json", ".jsonl", ".csv", ".xml")
"""Suffixes of files that it reads, too; with other data they are their descriptions."""
DOUBLE = (".nii.gz", ".tar.gz", ".csv.gz")
MAX_SHOWN = 4
IN_PYTHON = "in Python: simulate(data=(x, y, x_test, y_test)), or --dataset FILE.py:FUNCTION"
"""How arrays are given that no reader of files takes."""
ADVICE = {
    **dict.fromkeys(
        MEDICAL, "convert to NIfTI (.nii.gz), to pictures (a 16-bit PNG keeps all levels) or to NumPy files"
    ),
    **dict.fromkeys(PICTURES, "convert to PNG, TIFF or JPEG"),
    **dict.fromkeys(ARCHIVES, "unpack it"),
    **dict.fromkeys(ARRAYS, f"read it {IN_PYTHON}"),
    ".npy": "call uint8 images and their labels train-images.npy and train-labels.npy (or -masks), and "
    f"test-... for a test set; read other arrays {IN_PYTHON}",
}
"""What to do with files that hold data and are not read, by suffix."""


def suffix(path: Path) -> str:
    """Return a file's suffix in lower case, such as ``.nii.gz``; empty if it has none."""
    name = path.name.lower()
    return next((double for double in DOUBLE if name.endswith(double)), path.suffix.lower())


def counted(paths: Collection[Path]) -> str:
    """Return how many files these are, by suffix, as ``3 files (2 .txt, 1 .csv)``."""
    counts = Counter(suffix(path) or "without suffix" for path in paths).most_common()
    shown = ", ".join(f"{count} {name}" for name, count in counts[:MAX_SHOWN])
    more = ", ..." if len(counts) > MAX_SHOWN else ""
    return f"{len(paths)} {'file' if len(paths) == 1 else 'files'} ({shown}{more})"


def refuse_unread(name: str, files: Iterable[Path]) -> None:
    """Refuse files none of which is read, by their own names.

    Raises
    ------
    UserError
        When they hold data of a kind that is not read; it says what to do.
    """
    unread = [path for path in files if suffix(path) in ADVICE]
    if unread:
        most = Counter(map(suffix, unread)).most_common(1)[0][0]
        are = "which is" if len(unread) == 1 else "which are"
        raise UserError(f"dataset: {name!r} holds {counted(unread)}, {are} not read; {ADVICE[most]}")


def refuse_unread_folders(found: Walk, used: Collection[Path]) -> None:
    """Refuse folders beside those of pictures that hold data of a kind that is not read, and nothing else.

    Raises
    ------
    UserError
        Else a class, or a site, would be left out.
    """
    above = {folder for path in used for folder in (path, *path.parents)}
    by_folder: dict[Path, list[Path]] = {}
    for path in found.files:
        if path.parent not in above and suffix(path) in (*MEDICAL, *PICTURES):
            by_folder.setdefault(path.parent, []).append(path)
    for folder, files in by_folder.items():
        refuse_unread(folder.relative_to(found.root).as_posix(), files)


def is_metadata(path: Path) -> bool:
    """Return whether a file describes pictures in the layout that the `datasets` library reads."""
    if path.stem != "metadata":
        return False
    if path.suffix.lower() != ".csv":
        return path.suffix.lower() in (".jsonl", ".parquet")
    with path.open(encoding="utf-8", errors="replace") as file:
        return "file_name" in file.readline()


def refuse_unlabelled(request: Request, found: Walk) -> None:
    """Refuse a folder with files of which none is read, or with pictures that nothing labels.

    Raises
    ------
    UserError
        Says what the folder holds, and what is expected.
    """
    described = any(map(is_metadata, found.files))
    if described or any(suffix(path) in OF_DATASETS for path in found.files):
        return
    refuse_unread(request.name, found.files)
    held = counted(found.files)
    if any(map(is_image, found.files)):
        labels = "a folder for each class, a table with names and labels, or folders 'images' and 'masks'"
        raise UserError(f"dataset: {request.name!r} holds {held}, which nothing labels; expected {labels}")
    if any(suffix(path) in OF_DATASETS_ALONE for path in found.files):
        return
    expected = f"a folder with pictures, tables or NumPy files: it holds {held}"
    raise not_allowed("dataset", request.name, expected)
