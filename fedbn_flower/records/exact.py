"""Metrics of single cases in the place of those of fixed thresholds, wherever a run knows its cases."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients import Problem
from fedbn_flower.clients.problems.metrics.base import CLASSES
from fedbn_flower.clients.problems.metrics.scores import OfScores
from fedbn_flower.clients.problems.segmentation import SCORES, TARGETS
from fedbn_flower.strategies import PhaseReport

from ..core.ground.columns import RECALIBRATED
from .cases import SCORE, TARGET

if TYPE_CHECKING:
    from pandas import DataFrame


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


def exact_of_table(table: "DataFrame", problem: Problem) -> dict[str, float]:
    """Return a run's metrics of scores, of its ``predictions.parquet`` or a part of it."""
    scores, targets = (
        table[[name for name in table.columns if name.partition("-")[0] == kind]].to_numpy()
        for kind in (SCORE, TARGET)
    )
    if problem.predicts == CLASSES:
        targets = targets[:, 0]
        scores = np.hstack([1 - scores, scores]) if scores.shape[1] == 1 else scores
    return exact_metrics(problem, scores, targets) if len(table) else {}


def of_scores(problem: Problem) -> Iterator[tuple[str, OfScores]]:
    """Yield the run's metrics that single cases give exactly, and histograms of their scores nearly."""
    for name, metric in problem.chosen.items():
        if isinstance(metric, OfScores):
            yield name, metric
