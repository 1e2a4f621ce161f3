"""Read what a user's function returns: ``--dataset FILE.py:NAME``."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...core.errors import UserError
from ...core.process_cache import process_cache
from .arrays import keep_arrays
from .torch_datasets import are_datasets, pooled

FUNCTION = re.compile(r".*\.py:\w+", re.DOTALL)


def is_function(dataset: str) -> bool:
    """Whether a dataset's name is that of a function in a file."""
    return bool(FUNCTION.fullmatch(dataset))


@process_cache(maxsize=4)
def keep_returned(name: str, function: Callable[[str], Any], cache: Path) -> str:
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

    Raises
    ------
    UserError
        When it returns anything else. What the function raises passes as it is.
    """
    train, test = (function(split) for split in ("train", "test"))
    by_client = are_datasets(train)
    try:
        found = pooled(train if by_client else {"all": train}, test)
        return keep_arrays(cache, found.arrays, found.groups if by_client else None, found.notes)
    except UserError as error:
        raise UserError(f"dataset: {name!r} returned what is not allowed: {error}") from error
