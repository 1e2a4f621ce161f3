"""Build datasets from parts that are given client by client."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.errors import unknown_name
from ..dataset import Decoded, Request
from ..notes import Note

Part = tuple[NDArray[Any], NDArray[Any]]
"""Inputs and targets."""


def check_group_column(request: Request, column: str) -> None:
    """Refuse a natural partition by another column than this one.

    Raises
    ------
    UserError
        Names the column.
    """
    if request.group_column not in ("", column):
        raise unknown_name("partition", f"natural:{request.group_column}", ["iid", f"natural:{column}"])


def join_clients(
    kind: str,
    clients: Mapping[str, tuple[Part, Part]],
    request: Request,
    facts: Mapping[str, Any] | None = None,
    notes: Iterable[Note] = (),
) -> Decoded:
    """Concatenate the training and test parts of the clients, given by id."""
    train, test = ([parts[split] for parts in clients.values()] for split in (0, 1))
    groups = None
    if request.group_column:
        ids = np.array(list(clients))
        groups = _repeat(ids, train), _repeat(ids, test)
    return Decoded(kind, _columns(train), _columns(test), facts or {}, groups, notes=tuple(notes))


def _repeat(ids: NDArray[np.str_], parts: Iterable[Part]) -> NDArray[np.str_]:
    return np.repeat(ids, [len(y) for _, y in parts])


def _columns(parts: Iterable[Part]) -> dict[str, NDArray[Any]]:
    inputs, targets = zip(*parts, strict=True)
    return {"x": np.concatenate(inputs), "y": np.concatenate(targets)}
