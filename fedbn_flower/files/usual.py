"""The model and the partition of files, where nobody chose them."""

from pathlib import Path

from ..config.run_config import MASKS, TABLES
from ..core.files import path_of
from .class_folders import has_class_sites
from .mask_folders import has_mask_sites
from .numpy_files import has_mask_arrays
from .pictures import FOLDER
from .tables import FILE, SUFFIXES, has_pictures, name_sites, table_files

IMAGES = {"model": "mlp-bn", "partition": "silos"}
TABLES_OF_SITES = {"model": "mlp-bn", "partition": f"natural:{FILE}"}
SITES = {"model": "unet", "partition": f"natural:{FOLDER}"}
SITES_OF_CLASSES = {"model": "mlp-bn", "partition": f"natural:{FOLDER}"}


def usual_of_files(dataset: str, numbers: bool) -> dict[str, str]:
    """Return ``model`` and ``partition`` for files of this name; ``numbers``: whether it is a regression."""
    if dataset.lower().endswith(SUFFIXES) and not has_pictures(path_of(dataset)):
        return TABLES
    chosen = _of_folder(path_of(dataset))
    return {**chosen, "partition": "iid"} if numbers and chosen is IMAGES else chosen


def _of_folder(folder: Path) -> dict[str, str]:
    if files := table_files(folder):
        return TABLES_OF_SITES if name_sites(files) else TABLES
    if has_mask_arrays(folder):
        return MASKS
    sites = has_mask_sites(folder)
    if sites is not None:
        return SITES if sites else MASKS
    return SITES_OF_CLASSES if has_class_sites(folder) else IMAGES
