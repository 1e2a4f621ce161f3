"""One sum of what clients evaluate and train: one vector has the integers of both, under one mask.

Where a message asks for both, the integers of the evaluation wait in the node's memory for those of the
training. They are never sent by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from flwr.app import ArrayRecord, RecordDict
from numpy.typing import NDArray

from fedbn_flower.strategies.messages.npy import encoded, viewed

from . import words
from .plan import Plan

Vector = NDArray[np.unsignedinteger]
WAITING = "secagg-evaluated"
"""The entry of a node's state for the integers of an evaluation that goes with a training."""


@contextmanager
def in_one_sum(state: RecordDict) -> Iterator[None]:
    """Have what a client finds of a model wait for what it trains, as long as this lasts."""
    state[WAITING] = ArrayRecord()
    try:
        yield
    finally:
        state.pop(WAITING, None)


def waits(state: RecordDict, vector: Vector) -> bool:
    """Keep the vector of an evaluation if a training is to follow it; return whether it is kept."""
    waiting = state.get(WAITING)
    if not isinstance(waiting, ArrayRecord):
        return False
    waiting[words.VECTOR] = encoded(vector)
    return True


def followed(vector: Vector, state: RecordDict, asked: Mapping[str, object], plan: Plan) -> Vector:
    """Return the vector of a training, followed by that of the evaluation if the server wants both.

    A client that has evaluated nothing adds nothing to the metrics.
    """
    if not asked.get(words.BOTH):
        return vector
    waiting = state.array_records.get(WAITING, ArrayRecord())
    own = viewed(waiting[words.VECTOR]) if words.VECTOR in waiting else plan.evaluated(0, {}, {})
    return np.concatenate([vector, own.astype(vector.dtype)])
