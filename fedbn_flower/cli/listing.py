"""Every name that a run can be given, with what it is."""

from collections.abc import Iterator
from typing import Any

from ..config.extension_names import EXTENSION
from ..config.help import first_line
from ..config.named_algorithms import REGISTRIES
from ..core.syntax import DATASET, PARTITION, UNION
from ..names import COMPRESS, METRIC, MODEL, NORM, PROBLEM, SELECTION, Registry

KINDS: tuple[Registry[Any], ...] = (
    *REGISTRIES,
    PROBLEM,
    METRIC,
    MODEL,
    NORM,
    SELECTION,
    COMPRESS,
    EXTENSION,
)
"""What a run can choose by name."""


def lines(long: bool = False) -> Iterator[str]:
    """Each name with what it is for, as ``--list`` shows them; if ``long``, with its formula instead."""
    for kind in KINDS:
        width = max(map(len, kind.names))
        for name, described in kind.names.items():
            line = first_line(described) if long else vars(described).get("purpose") or first_line(described)
            yield f"{kind.key:<10} {name:<{width}} {line.replace('``', '')}"
    yield f"client     {UNION}"
    yield f"dataset    {DATASET}"
    yield f"partition  {PARTITION}"
