"""Build datasets from parts that are given client by client."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.errors import unknown_name
from ..dataset import Decoded, Request, Split
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

    def split(parts: Sequence[Part]) -> Split:
        inputs, targets = map(np.concatenate, zip(*parts, strict=True))
        ids = np.repeat(list(clients), [len(y) for _, y in parts]) if request.group_column else None
        return Split({"x": inputs, "y": targets}, ids)

    train, test = map(split, zip(*clients.values(), strict=True))
    return Decoded(kind, train, test, facts or {}, notes=tuple(notes))
