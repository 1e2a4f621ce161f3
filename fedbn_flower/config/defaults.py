"""Defaults that depend on the data."""

from pathlib import Path

from ..core.files import path_of
from ..data.readers.class_folders import has_class_sites
from ..data.readers.digits import DIGITS, SCANNERS, SITE
from ..data.readers.made import QUADRATIC, SYNTHETIC
from ..data.readers.mask_folders import has_mask_sites
from ..data.readers.numpy_files import has_mask_arrays
from ..data.readers.own_function import is_function
from ..data.readers.pictures import FOLDER
from ..data.readers.tables import FILE, SUFFIXES, has_pictures, name_sites, table_files
from ..data.readers.text import TEXT, TOKENS
from ..data.sources import ARRAYS, OF_MASKS

OF_SCANNERS = {"model": "mlp-bn", "partition": f"natural:{SITE}"}
OF_DIGITS = {"model": "mlp-bn", "partition": "silos:0-4,5-9"}
IMAGES = {"model": "mlp-bn", "partition": "silos"}
TABLES = {"model": "mlp-bn", "partition": "iid"}
TABLES_OF_SITES = {"model": "mlp-bn", "partition": f"natural:{FILE}"}
PLAYS = {"model": "char-lstm", "partition": "natural:speaker"}
MASKS = {"model": "unet", "partition": "iid"}
SITES = {"model": "unet", "partition": f"natural:{FOLDER}"}
SITES_OF_CLASSES = {"model": "mlp-bn", "partition": f"natural:{FOLDER}"}
MADE = {"model": "linear", "partition": "natural:client"}
EMBEDDED = {SCANNERS: OF_SCANNERS, DIGITS: OF_DIGITS}
UP_TO_0_2_0 = DIGITS
"""The default dataset of version 0.2.0."""
BEGINNINGS = {
    TEXT: PLAYS,
    TOKENS: PLAYS,
    SYNTHETIC: MADE,
    QUADRATIC: MADE,
    ARRAYS: TABLES,
    "shape:": TABLES,
}


def defaults_for(dataset: str, numbers: bool = False) -> dict[str, str]:
    """``model`` and ``partition`` for a dataset of this name; ``numbers``: whether it is a regression."""
    if dataset in EMBEDDED:
        return EMBEDDED[dataset]
    if dataset.startswith("shape:") and dataset.endswith(":characters"):
        return {**PLAYS, "partition": "iid"}
    if dataset.startswith(("shape:", ARRAYS)) and dataset.endswith(OF_MASKS):
        return MASKS
    for beginning, chosen in BEGINNINGS.items():
        if dataset.startswith(beginning):
            return chosen
    of_tables = dataset.lower().endswith(SUFFIXES) and not has_pictures(path_of(dataset))
    if of_tables or is_function(dataset):
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
