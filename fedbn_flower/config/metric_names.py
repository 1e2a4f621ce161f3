"""The metrics that a run names: ``f1,auroc,sensitivity-at:0.95``, ``FILE.py:NAME``, torchmetrics' names."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from fedbn_flower.clients import Metric, Predicted, Problem
from fedbn_flower.clients.problems.metrics.from_torchmetrics import TorchMetric, class_named, is_torchmetric
from fedbn_flower.clients.returned import WrongResult

from ..core.errors import not_allowed, unknown_name
from ..names import METRIC, absolute, as_user_error, short

NONE = "none"
KEY = METRIC.key


def metric_names(text: str) -> list[str]:
    """Return the names in a comma-separated text; [] for ``none``."""
    return [] if text == NONE else [name.strip() for name in text.split(",")]


def absolute_metrics(text: str) -> str:
    """Return the names with absolute paths, for a process in another folder."""
    return ",".join(absolute(name) if METRIC.is_code(name) else name for name in metric_names(text)) or NONE


def with_metrics(problem: Problem, text: str, predicted: Predicted, by: Sequence[str] = ()) -> Problem:
    """Return a problem with the metrics of a run; the first is the headline. See `metrics_named`."""
    usual = problem.usual_metrics(predicted)
    named = metrics_named(text, predicted, (*problem.metrics, *usual), by)
    further = usual | {name: metric for name, metric in named.items() if metric}
    return problem.with_metrics(further, next(iter(named), "")) if usual or named else problem


def metrics_named(
    text: str, predicted: Predicted, known: Collection[str], by: Sequence[str] = ()
) -> dict[str, Metric | None]:
    """Return a run's metrics by column name, in order; None for those that the problem already has.

    Parameters
    ----------
    text : str
        The key ``metrics``.
    predicted : Predicted
        What the problem predicts.
    known : Collection[str]
        The metrics that the problem always has.
    by : Sequence[str]
        Names of classes, labels or numbers; metrics are reported for each of these, too.

    Raises
    ------
    UserError
        For the first name that is unknown, given twice, or does not fit; with ``by``, if no metric has values
        by class.
    """
    found: dict[str, Metric | None] = {}
    for name in metric_names(text):
        column = short(name) if METRIC.is_code(name) else name
        if column in found:
            raise not_allowed(KEY, text, f"each metric once, not {column!r} twice")
        found[column] = None if name in known else _metric(name, predicted)
    for column, metric in found.items():
        if metric and not metric.state:
            metric.state = f"{column}-state"
    if by:
        found = {column: metric and _by_class(column, metric, by) for column, metric in found.items()}
        if not any(metric and metric.by for metric in found.values()):
            several = "metrics that have a value for each of several classes, labels or numbers"
            raise not_allowed("metrics-by-class", "true", f"false, or {several}")
    return found


def _by_class(name: str, metric: Metric, names: Sequence[str]) -> Metric:
    with as_user_error(KEY, name):
        return metric.by_class(names)


def _metric(name: str, predicted: Predicted) -> Metric:
    head, _, argument = name.partition(":")
    cls: Any = METRIC.find(name) if METRIC.is_code(name) else METRIC.names.get(head)
    if cls is None:
        cls = class_named(name, predicted)
        if cls is None:
            others = "the name of a class of torchmetrics, such as cohen-kappa, or FILE.py:NAME"
            raise unknown_name(KEY, name, METRIC.names, others)
    if is_torchmetric(cls):
        return _made(name, lambda: TorchMetric(predicted, cls))
    if predicted.kind not in cls.kinds:
        fitting = [n for n, metric in METRIC.names.items() if predicted.kind in metric.kinds]
        wanted = f"a metric of {predicted.kind or 'this problem'}"
        raise not_allowed(
            KEY, name, f"{wanted}: {', '.join(fitting)}" if fitting else f"'{NONE}' with this problem"
        )
    return _made(name, lambda: cls(predicted, "" if METRIC.is_code(name) else argument))


def _made(name: str, make: Callable[[], Metric]) -> Metric:
    """Construct a metric; check that it computes a value over no examples."""
    try:
        with as_user_error(KEY, name, but=(ValueError,)):
            metric = make()
    except ValueError as error:
        raise not_allowed(KEY, name, str(error)) from None
    with as_user_error(KEY, name), np.errstate(divide="ignore", invalid="ignore"):
        state: object = metric.zeros()
        if not isinstance(state, np.ndarray) or state.any():  # else it does not add, as a mean of none
            found = str(state) if isinstance(state, np.ndarray) else state
            raise WrongResult(metric, "batch", found, "a NumPy array, of zeros for no examples")
        values = metric.values(state)
        if np.asarray(values).dtype.kind not in "fiu":
            raise WrongResult(metric, "values", values, "numbers, a NumPy array (k,)")
        metric.value(state)
    return metric
