"""Read what a user's function or kind of data returns: ``--dataset FILE.py:NAME``."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedbn_flower.clients.modules.lazy_torch import torch

from ..core.errors import UserError, not_allowed
from ..core.notes import Note
from ..core.process_cache import process_cache
from ..data.cache import load_dataset
from ..data.dataset import Dataset, Kind, Request
from ..data.readers.arrays import are_datasets, keep_arrays
from ..data.sources import ARRAYS, OF_CLIENTS
from .torch_datasets import EVERYBODY, pooled

NOT_BY_CLIENT = Note(
    "clients", "the function's own clients are not kept apart: partition natural:client does that"
)


@process_cache(maxsize=4)
def keep_returned(
    name: str, function: Callable[[str], Any], cache: Path, predict: str = "auto", of_site: bool = False
) -> str:
    """Put what a function returns into the cache, and return the name by which `load_dataset` finds it.

    Parameters
    ----------
    name : str
        The function's name.
    function : Callable[[str], Any]
        Called with ``train`` and with ``test``. It returns a Dataset, or a pair of arrays of inputs and
        targets, as `keep_arrays` takes them; or a list or a mapping of such, one for each client. For
        ``test`` it may return None: a fixed fifth is held out.
    cache : Path
        The run's `cache_folder`.
    predict, of_site
        As in `Request`.

    Raises
    ------
    UserError
        When it returns anything else. What the function raises passes as it is.
    """
    train, test = (function(split) for split in ("train", "test"))
    by_client = are_datasets(train)
    try:
        found = pooled(train if by_client else {EVERYBODY: train}, test, called=("train", "test"))
        if not by_client:
            found = found._replace(groups=None)
        return keep_arrays(cache, *found, predict=predict, of_site=of_site)
    except UserError as error:
        raise UserError(f"dataset: {name!r} returned what is not allowed: {error}") from error


def load_returned(request: Request, own: Callable[[str], Any], cache: Path) -> Dataset:
    """Return the dataset of a function, or of a subclass of `Kind` that has such a function as its ``read``.

    Raises
    ------
    UserError
        As `keep_returned`; when the class is of other data than it reads, or prepares another shape than its
        ``spec`` says. What its methods raise passes as it is.
    """
    name = request.name

    def keep(function: Callable[[str], Any]) -> str:
        return keep_returned(name, function, cache, request.predict, request.of_site)

    def load(function: Callable[[str], Any]) -> Dataset:
        kept = keep(function)
        found = load_dataset(replace(request, name=kept), cache)
        if request.group_column or request.of_site or not kept.startswith(f"{ARRAYS}{OF_CLIENTS}"):
            return found
        return replace(found, notes=(*found.notes, NOT_BY_CLIENT))

    if not isinstance(own, type):
        return load(own)
    read = getattr(own, "read", None)
    if not issubclass(own, Kind) or not callable(read):
        raise not_allowed("dataset", name, "a function of 'train' or 'test', or a subclass of Kind with read")
    found = load(read)
    if not issubclass(own, base := type(found.kind)):
        raise not_allowed("dataset", name, f"a subclass of {base.__name__}, the kind of what it reads")
    kind = own(found.kind.facts, found.train.columns)
    spec, rows = kind.spec(), np.arange(min(2, len(found.train)))
    some = {column: torch.from_numpy(values[rows]) for column, values in found.train.columns.items()}
    inputs, targets = kind.prepare(rows, False)(some)
    if tuple(inputs.shape) != (len(rows), *spec.shape) or len(targets) != len(rows):
        made = f"{len(targets)} targets for inputs of {tuple(inputs.shape)}"
        raise UserError(f"dataset: {name!r} prepares {made}; expected {len(rows)} examples of {spec}")
    return replace(found, kind=kind, spec=spec, problem=kind.problem())
