"""What the server reads of single answers, and what of their sum it puts in their place."""

from __future__ import annotations

import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedbn_flower.strategies import PhaseReport, ReplyRefused
from fedbn_flower.strategies.aggregation.fold import PARAMETERS, STATISTICS
from fedbn_flower.strategies.aggregation.vectors import Layout
from fedbn_flower.strategies.messages.gate import NPY_HEADER_BYTES, record_of
from fedbn_flower.strategies.messages.npy import decoded, encoded

from ...core.ground.wire import COMPRESSED, SUM_WEIGHTS, SUMS
from ..base import Moment
from . import words
from .plan import Found


def vector_in(
    content: RecordDict, like: NDArray[np.unsignedinteger], simulated: bool
) -> NDArray[np.unsignedinteger] | None:
    """Return the vector of an answer; None of one that a simulation has summed with others'."""
    if simulated and COMPRESSED not in content:
        return None
    entry = record_of(content, COMPRESSED, ArrayRecord).get(words.VECTOR)
    if entry is None or len(entry.data) > like.nbytes + NPY_HEADER_BYTES:
        raise ReplyRefused("secagg: the vector is missing or too long")
    vector: NDArray[np.unsignedinteger] = decoded(entry, like)
    if vector.shape != like.shape or vector.dtype != like.dtype:
        raise ReplyRefused(
            f"secagg: a vector of {vector.shape} {vector.dtype}, expected {like.shape}", "shape"
        )
    return vector


def without_metrics(report: PhaseReport) -> PhaseReport:
    """Return who answered, without what."""
    return PhaseReport({partition: MetricRecord() for partition in report.metrics}, report.failures)


def sums_of(moment: Moment, found: Found, layout: Layout) -> dict[str, ArrayRecord | MetricRecord]:
    """Return the sums as a worker that sums a group would."""
    update, others = found.update.astype(layout.dtypes[0]), found.others.astype(layout.dtypes[1])
    layout.tie(update)
    for sums, sent in zip((update, others), layout.flatten(moment.rule._train_phase_.sent()), strict=True):
        if not (finite := np.isfinite(sent)).all():  # attention masks stay as they are
            sums[~finite] = sent[~finite]
    records = {PARAMETERS: encoded(update), STATISTICS: encoded(others)}
    return {SUMS: ArrayRecord(records), SUM_WEIGHTS: MetricRecord(dict.fromkeys(records, found.weight))}
