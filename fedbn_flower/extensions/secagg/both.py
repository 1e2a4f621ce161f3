"""One sum of what clients evaluate and train: one vector has the integers of both, under one mask.

Where a message asks for both, the integers of the evaluation wait in the node's memory for those of the
training. They are never sent by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from numpy.typing import NDArray

from fedbn_flower.strategies.messages.gate import record_of
from fedbn_flower.strategies.messages.npy import encoded, viewed

from ...core.ground.wire import CONFIG, EVALUATION
from . import words
from .answers import contents_of
from .plan import Plan

Vector = NDArray[np.unsignedinteger]
WAITING = "secagg-evaluated"
"""The entry of a node's state for the integers of an evaluation that goes with a training."""


def say_both(messages: Iterable[Message], number: int) -> None:
    """Tell clients that evaluate and train in a round that both go into one vector."""
    for content in contents_of(messages):
        for name in {CONFIG, EVALUATION} & content.keys():
            record_of(content, name, ConfigRecord)[words.BOTH] = number


def waits(state: RecordDict, vector: Vector, asked: Mapping[str, object]) -> bool:
    """Keep the vector of an evaluation if a training is to follow it; return whether it is kept."""
    if not asked.get(words.BOTH):
        return False
    state[WAITING] = ArrayRecord({str(asked[words.BOTH]): encoded(vector)})
    return True


def followed(vector: Vector, state: RecordDict, asked: Mapping[str, object], plan: Plan) -> Vector:
    """Return the vector of a training, followed by that of the evaluation if the server wants both.

    A client that has evaluated nothing adds nothing to the metrics.
    """
    waiting, number = state.pop(WAITING, None), asked.get(words.BOTH)
    if not number:
        return vector
    found = waiting.get(str(number)) if isinstance(waiting, ArrayRecord) else None
    own = plan.evaluated(0, {}, {}) if found is None else viewed(found)
    return np.concatenate([vector, own.astype(vector.dtype)])
