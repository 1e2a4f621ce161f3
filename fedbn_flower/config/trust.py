"""Refuse to run code that is named by someone else's folder or file, unless it is trusted.

``FILE.py:NAME`` and ``package.module:NAME`` run Python, and so does what a Ray cluster sends. On the command
line and in a TOML or YAML file, which a person writes, the names are the caller's; in the folder of a run, a
sweep or a search they are those of whoever made the folder. A library's network does not count as code.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..core.errors import UserError
from ..core.named_call import is_of_library
from ..data.sources import is_function
from ..models.named import MODEL
from ..names import DATASET, METRIC, parts
from .metric_names import metric_names
from .named_algorithms import EXTENSION, NAMED, WITH_ARGUMENT, extension_names, with_full_paths

CLUSTER = "ray-address"

Names = Iterable[tuple[str, str]]
"""Pairs of key and value; a key may occur several times."""


def code_in(key: str, value: str) -> set[str]:
    """Return the files, modules and clusters whose code a value of a key would run."""
    if key == CLUSTER:
        return {value} - {""}
    names = parts(value, NAMED[key]) if key in NAMED else []
    if key == METRIC.key:
        names = [name for name in metric_names(value) if METRIC.is_code(name)]
    if key == EXTENSION.key:
        names = extension_names(value)
    if key == DATASET.key and is_function(value):
        names = [value]
    if key in WITH_ARGUMENT and WITH_ARGUMENT[key].is_code(value):
        names = [value]
    if key == MODEL.key:
        names = [name for name in names if not is_of_library(name)]
    return {name.rpartition(":")[0] for name in names if ":" in name}


def names_of(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the values that may name code, of a configuration or of tables with lists."""
    for key, value in values.items():
        for one in value if isinstance(value, list | tuple) else [value]:
            yield key, str(one)


def check_code(names: Names, source: Path, given: Names = ()) -> None:
    """Refuse to run code that a file names, unless the caller names it, too.

    Parameters
    ----------
    names : Names
        The values in the file.
    source : Path
        The file.
    given : Names, optional
        The values from the caller.

    Raises
    ------
    UserError
        For the first value that names untrusted code.
    """
    known = {code for key, value in given for code in code_in(key, with_full_paths(key, value))}
    for key, value in names:
        if code_in(key, value) - known:
            raise UserError(
                f"{key}: {value!r} is code that {str(source)!r} names, which is not run unasked; "
                "expected trust-code true, if you trust it, or the same name given by yourself"
            )
