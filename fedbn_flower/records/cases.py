"""Held-out cases one by one: what a model predicted of each, as a table and as a file.

Where a run knows its cases, metrics of these are in the place of those of fixed thresholds.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from fedbn_flower.clients import Problem
from fedbn_flower.clients.problems.evaluation import ROWS
from fedbn_flower.clients.problems.metrics.scores import OfScores
from fedbn_flower.clients.problems.segmentation import SCORES, TARGETS
from fedbn_flower.strategies import PhaseReport
from fedbn_flower.strategies.messages.nodes import NodeDirectory
from fedbn_flower.strategies.messages.npy import viewed

from ..core.free_memory import regular
from ..core.ground.columns import RECALIBRATED, TEST, HeldOut
from ..core.process_cache import process_cache
from .array_file import array_file

if TYPE_CHECKING:
    import pyarrow as pa
    from pandas import DataFrame

PREDICTIONS_FILE = "predictions.parquet"
LARGEST_KEPT = 1 << 21
"""Bytes of a file whose table stays in memory for whatever asks for it next."""
SITE, ID, GROUP, TARGET, SCORE, SEED = "site", "id", "group", "target", "score", "seed"
FOLD = HeldOut.FOLDS.column
NEW, SPLIT, SOURCE, PREDICTED = HeldOut.CLIENTS.column, "split", "source", "predicted"
OF_CLASS = "score-"
"""How columns of the scores of several classes begin; the class's name follows."""
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
        The number of what each row of the split belongs to with others, such as a patient.
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
    group_names: NDArray | None = None
    """What the groups are called, by number."""
    origins: NDArray[np.bytes_] | None = None
    """Where each row of the split comes from, in UTF-8."""
    split: str = TEST
    """The split that the rows are of."""
    new: bool = False
    """Whether the cases are of clients that never train."""

    @property
    def words(self) -> list[str]:
        """The names of the classes; empty where they are called by their numbers."""
        names = list(self.outputs)
        return [] if names == list(map(str, range(len(names)))) else names

    @property
    def scores(self) -> list[str]:
        """The columns of scores: one if there are two classes, or one number."""
        return self.of_masks[0] if self.of_masks else self.of_scores(SCORE)

    def of_scores(self, name: str) -> list[str]:
        """The columns of something that there is of each score: NAME, or ``NAME-CLASS`` for each class."""
        if len(self.outputs) == (2 if self.one_of else 1):
            return [name]
        return [f"{name}-{output}" for output in self.outputs]

    def groups_of(self, rows: NDArray) -> list[str | None]:
        """What the groups of some rows are called; None where there are none."""
        if self.groups is None:
            return [None] * len(rows)
        found = self.groups[rows]
        return [str(one) for one in (found if self.group_names is None else self.group_names[found])]

    def sources_of(self, rows: NDArray) -> list[str | None]:
        """Where some rows come from; None where it is not known, and bytes that are no UTF-8 as ``\\xff``."""
        if self.origins is None:
            return [None] * len(rows)
        return [one.decode("utf-8", "backslashreplace") or None for one in self.origins[rows].tolist()]

    @property
    def targets(self) -> list[str]:
        """The columns of targets: one, or one for each label or number."""
        if self.of_masks:
            return self.of_masks[1]
        if self.one_of or len(self.outputs) == 1:
            return [TARGET]
        return [f"{TARGET}-{name}" for name in self.outputs]


def cases_used(
    sent: Mapping[int, ArrayRecord], nodes: NodeDirectory, report: PhaseReport
) -> dict[int, dict[str, NDArray]]:
    """Return the cases of the clients whose answers were used, by partition, in its order."""
    by_partition = {nodes.partition(node): record for node, record in sent.items()}
    return {
        partition: {name: np.array(viewed(array)) for name, array in record.items()}
        for partition, record in sorted(by_partition.items())
        if partition in report.metrics
    }


def predictions_file(*parts: tuple[Mapping[str, Cases], CaseColumns]) -> bytes:
    """Return the content of ``predictions.parquet``: the cases of each site, in the order of its rows.

    What has other columns, as cases of another split, is a part of its own; one without cases is left out.

    Of two classes ``score`` is the probability of the event. Otherwise there is a column of scores for each
    class, label or number. Where a site has recalibrated its scores, there are as many columns of these.
    A class is written as its name, of a dictionary of all names, of two with the event last; without names as
    its number.
    """
    import pyarrow as pa
    from pyarrow import parquet

    tables = [_table(cases, columns) for cases, columns in parts if cases]
    content = io.BytesIO()
    parquet.write_table(pa.concat_tables(tables, promote_options="default"), content)
    return content.getvalue()


def _table(cases: Mapping[str, Cases], columns: CaseColumns) -> pa.Table:
    import pyarrow as pa

    rows, scores, targets = (
        np.concatenate([found[name] for found in cases.values()]) for name in (ROWS, SCORES, TARGETS)
    )
    targets = targets.reshape(len(targets), -1)
    count = len(rows)
    told = dict(zip(columns.targets, targets.T, strict=True))
    if columns.one_of and not columns.of_masks:
        told |= {PREDICTED: scores.argmax(1)}
        if columns.words:
            told = {k: pa.DictionaryArray.from_arrays(v, columns.words) for k, v in told.items()}
    second = slice(1, 2) if columns.scores == [SCORE] and columns.one_of else slice(None)
    scores = scores[:, second]
    table = {
        SITE: pa.array(np.repeat(list(cases), [len(found[ROWS]) for found in cases.values()]).astype(object)),
        NEW: pa.array(np.full(count, columns.new)),
        SPLIT: pa.array([columns.split] * count, pa.string()),
        ID: pa.array(rows),
        SOURCE: pa.array(columns.sources_of(rows), pa.string()),
        GROUP: pa.array(columns.groups_of(rows), pa.string()),
        **{
            f"{SUBGROUP}{name}": pa.array(
                words[rows].astype(object), mask=words[rows] == "", type=pa.string()
            )
            for name, words in columns.subgroups.items()
        },
        **told,
        **{name: pa.array(scores[:, i]) for i, name in enumerate(columns.scores)},
        **_recalibrated(cases, columns, second),
        FOLD: pa.array([columns.fold or None] * count, pa.int64()),
        SEED: pa.array(np.full(count, columns.seed)),
    }
    return pa.table(table)


def _recalibrated(cases: Mapping[str, Cases], columns: CaseColumns, second: slice) -> dict[str, NDArray]:
    """Return the columns of recalibrated scores, NaN where a site has none; no columns if none has any."""
    if not any(RECALIBRATED in found for found in cases.values()):
        return {}
    of_sites = [found.get(RECALIBRATED, np.full_like(found[SCORES], np.nan)) for found in cases.values()]
    table = np.concatenate(of_sites)[:, second]
    return {name: table[:, i] for i, name in enumerate(columns.of_scores(RECALIBRATED))}


def in_numbers(table: DataFrame) -> DataFrame:
    """Return a table with class numbers, int64, in place of the names of classes as the target."""
    if TARGET not in table.columns or table[TARGET].dtype != "category":
        return table
    return table.assign(**{TARGET: table[TARGET].cat.codes.astype(np.int64)})


def is_binary(table: DataFrame) -> bool:
    """Return whether cases have one score, and 0 or 1 as the target."""
    if not {TARGET, SCORE} <= {*table.columns}:
        return False
    table = in_numbers(table)
    return table[TARGET].dtype.kind == "i" and bool(table[TARGET].isin((0, 1)).all())


def binary_cases(folder: Path, new: bool = False) -> DataFrame | None:
    """Return `predictions_of` a run's folder; None if it keeps none, or of other than two classes."""
    table = predictions_of(folder, SCORE, new)
    return table if table is not None and is_binary(table) else None


def predictions_of(folder: Path, only_if: str = SITE, new: bool = False) -> DataFrame | None:
    """Return the cases of a run's folder, `in_numbers`; None if it has none, or no column ``only_if``.

    They are those of the clients that trained, or of the ``new`` ones. Of several splits an ``id`` names its
    split, too.
    """
    table = written_predictions(folder, only_if)
    if table is None:
        return None
    of_new = table[NEW] if NEW in table.columns else np.full(len(table), False)
    table = in_numbers(table[of_new == new].reset_index(drop=True))
    if SPLIT in table.columns and table[SPLIT].nunique() > 1:
        table = table.assign(**{ID: table[SPLIT] + " " + table[ID].astype(str)})
    return table if len(table) else None


def written_predictions(folder: Path, only_if: str = SITE) -> DataFrame | None:
    """Return the same table as it is written, with the names of classes."""
    if only_if not in written_columns(folder):
        return None
    path = folder / PREDICTIONS_FILE
    found = path.stat()
    if found.st_size > LARGEST_KEPT:
        return _read(path)
    return _kept(path, found.st_mtime_ns, found.st_size, found.st_ino).copy()


@process_cache(maxsize=32)
def _kept(path: Path, *state: int) -> DataFrame:
    """Return a table, which is read again when the file's state is another: tables of a sweep often ask."""
    return _read(path)


def _read(path: Path) -> DataFrame:
    import pandas as pd

    return pd.read_parquet(path.absolute())


def written_columns(folder: Path) -> list[str]:
    """Return the names of the columns of a run's cases, without reading these; none if it has no cases."""
    path = regular(folder / PREDICTIONS_FILE)
    if not path.exists():
        return []
    from pyarrow import parquet

    return list(parquet.read_schema(path.absolute()).names)


def make_exact(report: PhaseReport, prefix: str, problem: Problem) -> None:
    """Replace what a report says of metrics of scores, if the cases of all its clients are known.

    Parameters
    ----------
    report : PhaseReport
        What clients found, and their cases; it is changed, and gets the metrics of all cases in one place.
    prefix : str
        How the metrics of their split begin.
    problem : Problem
        The problem, with the run's metrics.
    """
    cases = report.cases
    if problem.case_metrics or not cases or cases.keys() != report.metrics.keys():
        return
    for begin, column in ((prefix, SCORES), (f"{RECALIBRATED}-", RECALIBRATED)):
        if all(column in found for found in cases.values()):
            for partition, found in cases.items():
                report.metrics[partition].update(exact_metrics(problem, found[column], found[TARGETS], begin))
            scores, targets = (
                np.concatenate([found[name] for found in cases.values()]) for name in (column, TARGETS)
            )
            report.pooled |= exact_metrics(problem, scores, targets, begin)


def exact_metrics(problem: Problem, scores: NDArray, targets: NDArray, prefix: str = "") -> dict[str, float]:
    """Return a run's metrics of scores, of cases as `Problem.predicted` has them; without undefined ones."""
    return {
        prefix + column: value
        for name, metric in of_scores(problem)
        for column, value in metric.in_columns(name, metric.exact(scores, targets)).items()
        if not np.isnan(value)
    }


def of_scores(problem: Problem) -> Iterator[tuple[str, OfScores]]:
    """Yield the run's metrics that single cases give exactly, and histograms of their scores nearly."""
    for name, metric in problem.chosen.items():
        if isinstance(metric, OfScores):
            yield name, metric


OVERLAYS_FILE = "overlays.safetensors"
IMAGE, REFERENCE, PREDICTION, DICE = "image", "reference", "prediction", "dice"
MOST_SITES = 12
"""How many sites have slices in the file: the first ones."""

Overlays = Mapping[str, NDArray]
"""Of one site's cases, best first: ``image``, uint8 (n, channels, height, width), ``reference`` and
``prediction``, uint8 (n, height, width), ``rows``, int64 (n,), and ``dice``, float64 (n,)."""


def overlays_file(found: Mapping[int, Overlays]) -> bytes:
    """Return the content of ``overlays.safetensors`` of clients by partition; empty without any.

    An array is called ``PARTITION/NAME``.
    """
    arrays = {
        f"{partition}/{name}": array
        for partition, overlays in list(found.items())[:MOST_SITES]
        for name, array in overlays.items()
    }
    return array_file(OVERLAYS_FILE, arrays) if arrays else b""


def overlays_of(folder: Path) -> dict[int, dict[str, NDArray]]:
    """Return the slices in a run's folder by partition; empty without the file."""
    try:
        arrays = load_file(regular(folder / OVERLAYS_FILE))
    except (OSError, SafetensorError):
        return {}
    found: dict[int, dict[str, NDArray]] = {}
    for key, array in arrays.items():
        partition, name = key.split("/", 1)
        found.setdefault(int(partition), {})[name] = array
    return dict(sorted(found.items()))


def in_8_bits(images: NDArray) -> NDArray[np.uint8]:
    """Return images (n, ...) of numbers as uint8, each stretched between its extremes; uint8 as it is."""
    if images.dtype == np.uint8:
        return images
    values = images.astype(np.float64)
    axes = tuple(range(1, values.ndim))
    low, high = values.min(axes, keepdims=True), values.max(axes, keepdims=True)
    spread = np.where(high > low, high - low, 1)
    return np.asarray(np.rint((values - low) * (255 / spread)), np.uint8)
