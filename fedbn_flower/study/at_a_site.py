"""Recalibration at a site: fitted on its validation cases, applied to its test cases; neither leaves it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedbn_flower.clients import Problem
from fedbn_flower.clients.problems.evaluation import ROWS, metrics_of_scores
from fedbn_flower.clients.problems.segmentation import SCORES, TARGETS

from ..core.ground.columns import RECALIBRATED
from ..core.ground.wire import CASES, RECALIBRATE, STATES
from .statistics.recalibration import PARAMETERS, Recalibration

OF_CASES = (ROWS, SCORES, TARGETS)


def recalibrated(
    metrics: dict[str, Any], asked: Mapping[str, Any], method: str, problem: Problem, names: Sequence[str]
) -> dict[str, Any]:
    """Return a client's metrics with those of its recalibrated scores, which begin with ``recalibrated-``.

    Parameters
    ----------
    metrics : dict[str, Any]
        Those of the evaluation, with the cases of both splits. In the result are the test cases, if they were
        asked for, with their recalibrated scores.
    asked : Mapping[str, Any]
        What the message says; `RECALIBRATE` names the splits.
    method : str
        How, of `statistics.recalibration.PARAMETERS`.
    problem : Problem
        The client's, with the metrics of the run.
    names : Sequence[str]
        Of the classes or labels.
    """
    cases = metrics.get(CASES)
    if not isinstance(cases, Mapping):  # a client with an evaluation of its own
        return metrics
    fitted_on, _ = str(asked[RECALIBRATE]).split(",")
    fitted = Recalibration.fitted(method, cases[f"{fitted_on}-{SCORES}"], cases[f"{fitted_on}-{TARGETS}"])
    scores = fitted(cases[SCORES])
    further, states = metrics_of_scores(scores, cases[TARGETS], problem)
    further |= _parameters(method, fitted, names)
    kept = {**{name: cases[name] for name in OF_CASES}, RECALIBRATED: scores}
    of_states = {f"{RECALIBRATED}-{name}": state for name, state in states.items()}
    return {
        **{name: value for name, value in metrics.items() if name != CASES},
        **{f"{RECALIBRATED}-{name}": value for name, value in further.items()},
        **({STATES: metrics[STATES] | of_states} if states else {}),
        **({CASES: kept} if CASES in asked else {}),
    }


def _parameters(method: str, fitted: Recalibration, names: Sequence[str]) -> dict[str, float]:
    """Return what was found, by name; of labels the name goes on with that of the label."""
    ends = [f"-{name}" for name in names] if fitted.labels else [""]
    found = {f"{PARAMETERS[method]}{end}": value for end, value in zip(ends, fitted.found, strict=True)}
    return {name: value for name, value in found.items() if not math.isnan(value)}
