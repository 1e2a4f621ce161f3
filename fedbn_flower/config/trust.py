"""Refuse to run code that a folder or a file from somebody else names, unless it is trusted.

``FILE.py:NAME`` and ``package.module:NAME`` run Python, and so does what a Ray cluster sends. On the command
line and in a TOML or YAML file, which a person writes, they are the caller's words; in what a run, a sweep
or a search has left they are those of whoever made the folder. A network of a library is no code.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..core.errors import UserError
from ..data.readers.own_function import is_function
from ..models.libraries import is_of_library
from ..names import DATASET, METRIC, MODEL, WITH_ARGUMENT, parts
from ..names import is_code as is_code_with_argument
from .extension_names import EXTENSION, extension_names
from .metric_names import is_code, metric_names
from .named_algorithms import NAMED, with_full_paths

CLUSTER = "ray-address"

Names = Iterable[tuple[str, str]]
"""Values by key; a key may come again."""


def code_in(key: str, value: str) -> set[str]:
    """Return the files, modules and clusters whose code a value of a key would run."""
    if key == CLUSTER:
        return {value} - {""}
    names = parts(value, NAMED[key]) if key in NAMED else []
    if key == METRIC.key:
        names = [name for name in metric_names(value) if is_code(name)]
    if key == EXTENSION.key:
        names = extension_names(value)
    if key == DATASET.key and is_function(value):
        names = [value]
    if key in WITH_ARGUMENT and is_code_with_argument(key, value):
        names = [value]
    if key == MODEL.key:
        names = [name for name in names if not is_of_library(name)]
    return {name.rpartition(":")[0] for name in names if ":" in name}


def names_of(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The values that may name code, of a configuration or of tables with lists."""
    for key, value in values.items():
        for one in value if isinstance(value, list | tuple) else [value]:
            yield key, str(one)


def check_code(names: Names, source: Path, given: Names = ()) -> None:
    """Refuse to run code that a file names, but for what the caller names too.

    Parameters
    ----------
    names : Names
        What the file says.
    source : Path
        The file.
    given : Names, optional
        What the caller says.

    Raises
    ------
    UserError
        For the first one.
    """
    known = {code for key, value in given for code in code_in(key, with_full_paths(key, value))}
    for key, value in names:
        if code_in(key, value) - known:
            raise UserError(
                f"{key}: {value!r} is code that {str(source)!r} names, which is not run unasked; "
                "expected trust-code true, if you trust it, or the same name given by yourself"
            )
