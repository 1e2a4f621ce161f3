"""Held-out cases one by one: what a model predicted of each, as a table and as a file."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients.problems.evaluation import ROWS
from fedbn_flower.clients.problems.segmentation import SCORES, TARGETS

from ..core.free_memory import regular
from ..core.ground.columns import RECALIBRATED

if TYPE_CHECKING:
    from pandas import DataFrame

PREDICTIONS_FILE = "predictions.parquet"
SITE, ID, GROUP, TARGET, SCORE, FOLD, SEED = "site", "id", "group", "target", "score", "fold", "seed"
SUBGROUP = "subgroup-"
"""How a column of subgroups begins; what divides the cases follows."""
Cases = Mapping[str, NDArray]
"""The arrays ``rows`` (n,), ``scores`` (n, k) and ``targets`` (n,) or (n, k) of a client's cases; where it
recalibrates, ``recalibrated`` (n, k), too; see also `evaluation.SHOWN`."""


@dataclass(frozen=True)
class CaseColumns:
    """What the columns of a table of cases are called, and what all of its rows have in common.

    Parameters
    ----------
    outputs : Sequence[str]
        The names of the classes, labels or numbers; of two classes the event is the second.
    one_of : bool
        Whether a case has one class; otherwise it has a target for each output.
    seed : int
        The run's.
    groups : NDArray, optional
        What each row of the split belongs to with others, such as a patient.
    fold : int
        The number of the run's fold, from 1 on; 0 without folds.
    of_masks : tuple, optional
        The columns of scores and of targets of cases that are masks; see `Problem.case_columns`.
    """

    outputs: Sequence[str]
    one_of: bool
    seed: int
    groups: NDArray | None = None
    fold: int = 0
    subgroups: Mapping[str, NDArray] = field(default_factory=dict)
    """The subgroup of each row of the split, by attribute; empty where it is not known."""
    of_masks: tuple[list[str], list[str]] | None = None

    @property
    def scores(self) -> list[str]:
        """The columns of scores: one if there are two classes, or one number."""
        return self.of_masks[0] if self.of_masks else self.of_scores(SCORE)

    def of_scores(self, name: str) -> list[str]:
        """The columns of something that there is of each score: NAME, or ``NAME-CLASS`` for each class."""
        if len(self.outputs) == (2 if self.one_of else 1):
            return [name]
        return [f"{name}-{output}" for output in self.outputs]

    @property
    def targets(self) -> list[str]:
        """The columns of targets: one, or one for each label or number."""
        if self.of_masks:
            return self.of_masks[1]
        if self.one_of or len(self.outputs) == 1:
            return [TARGET]
        return [f"{TARGET}-{name}" for name in self.outputs]


def predictions_file(cases: Mapping[str, Cases], columns: CaseColumns) -> bytes:
    """Return the content of ``predictions.parquet``: the cases of each site, in the order of its rows.

    Of two classes ``target`` is 1 for the event, and ``score`` its probability.
    Otherwise there is a column of scores for
    each class, label or number. Where a site has recalibrated its scores, there are as many columns of these.
    """
    import pyarrow as pa
    from pyarrow import parquet

    rows, scores, targets = (
        np.concatenate([found[name] for found in cases.values()]) for name in (ROWS, SCORES, TARGETS)
    )
    second = slice(1, 2) if columns.scores == [SCORE] and columns.one_of else slice(None)
    scores = scores[:, second]
    targets = targets.reshape(len(targets), -1)
    count = len(rows)
    group = columns.groups
    table = {
        SITE: pa.array(np.repeat(list(cases), [len(found[ROWS]) for found in cases.values()]).astype(object)),
        ID: pa.array(rows),
        GROUP: pa.nulls(count, pa.string()) if group is None else pa.array(group[rows].astype(str)),
        **{
            f"{SUBGROUP}{name}": pa.array(
                words[rows].astype(object), mask=words[rows] == "", type=pa.string()
            )
            for name, words in columns.subgroups.items()
        },
        **{name: pa.array(targets[:, i]) for i, name in enumerate(columns.targets)},
        **{name: pa.array(scores[:, i]) for i, name in enumerate(columns.scores)},
        **_recalibrated(cases, columns, second),
        FOLD: pa.array([columns.fold or None] * count, pa.int64()),
        SEED: pa.array(np.full(count, columns.seed)),
    }
    content = io.BytesIO()
    parquet.write_table(pa.table(table), content)
    return content.getvalue()


def _recalibrated(cases: Mapping[str, Cases], columns: CaseColumns, second: slice) -> dict[str, NDArray]:
    """Return the columns of recalibrated scores, NaN where a site has none; no columns if none has any."""
    if not any(RECALIBRATED in found for found in cases.values()):
        return {}
    of_sites = [found.get(RECALIBRATED, np.full_like(found[SCORES], np.nan)) for found in cases.values()]
    table = np.concatenate(of_sites)[:, second]
    return {name: table[:, i] for i, name in enumerate(columns.of_scores(RECALIBRATED))}


def with_recalibrated(table: DataFrame) -> DataFrame | None:
    """Return a table with the recalibrated scores in place of the others, of the cases that have them.

    None if it has none.
    """
    names = [name for name in table.columns if name.partition("-")[0] == RECALIBRATED]
    if not names:
        return None
    plain = {name: SCORE + name.removeprefix(RECALIBRATED) for name in names}
    return table.drop(columns=[*plain.values()]).rename(columns=plain).dropna(subset=[*plain.values()])


def predictions_of(folder: Path, only_if: str = SITE) -> DataFrame | None:
    """Return the table of a run's folder; None if it has none, or that has no column ``only_if``."""
    path = regular(folder / PREDICTIONS_FILE)
    if not path.exists():
        return None
    from pyarrow import parquet

    if only_if not in parquet.read_schema(path).names:
        return None
    import pandas as pd

    return pd.read_parquet(path)
