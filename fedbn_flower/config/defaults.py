"""What fits the data where nothing was chosen."""

from ..core.files import path_of
from ..data.readers.own_function import is_function
from ..data.readers.quadratic import QUADRATIC
from ..data.readers.synthetic import SYNTHETIC
from ..data.readers.tables import SUFFIXES, table_files
from ..data.readers.text import TEXT
from ..data.sources import ARRAYS

DIGITS = {"model": "mlp-bn", "partition": "silos:0-4,5-9"}
IMAGES = {"model": "mlp-bn", "partition": "silos"}
TABLES = {"model": "mlp-bn", "partition": "iid"}
PLAYS = {"model": "char-lstm", "partition": "natural:speaker"}
MADE = {"model": "linear", "partition": "natural:client"}
BEGINNINGS = {TEXT: PLAYS, SYNTHETIC: MADE, QUADRATIC: MADE, ARRAYS: TABLES, "shape:": TABLES}


def defaults_for(dataset: str) -> dict[str, str]:
    """``model`` and ``partition`` for a dataset of this name."""
    if dataset == "digits":
        return DIGITS
    if dataset.startswith("shape:") and dataset.endswith(":characters"):
        return {**PLAYS, "partition": "iid"}
    for beginning, chosen in BEGINNINGS.items():
        if dataset.startswith(beginning):
            return chosen
    is_table = dataset.endswith(SUFFIXES) or is_function(dataset) or table_files(path_of(dataset))
    return TABLES if is_table else IMAGES
