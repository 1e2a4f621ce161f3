"""Means and spread of the clients' metrics: the only definition of a round's ``loss`` and the like.

And metrics as papers call them, for headings, axes and legends, with as many decimals.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from flwr.app import MetricRecord
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from fedbn_flower.clients import Problem
from fedbn_flower.clients.problems.evaluation import added, value_of_each
from fedbn_flower.strategies import PhaseReport

from ..core.free_memory import regular
from ..core.ground.columns import CLIENT_MEAN, CLIENT_MEDIAN, DEVIATION, HELD_OUT, TEST, WORST, WORST_TENTH
from ..core.ground.wire import STATES
from .array_file import array_file
from .events import RoundResult

STATES_FILE = "states.safetensors"
POOLED, GLOBAL = "pooled", "global"
MOST_CLIENTS = 12
"""How many clients have their states in the file; with more, none has."""


def pooled_states(report: PhaseReport) -> dict[str, NDArray]:
    """Return the sum over clients of each state of the further metrics, by its name in the reports.

    A client without any has evaluated nothing. A state that not every other client sent is left out: the sum
    would not be that of all examples.
    """
    sent = [states for states in report.states.values() if states]
    names = dict.fromkeys(name for states in sent for name in states)
    return added(
        {name: states[name] for name in names if all(name in some for some in sent)} for states in sent
    )


def states_file(result: RoundResult, problem: Problem) -> bytes:
    """Return the content of ``states.safetensors``; empty without states.

    An array is called ``WHOSE/STATE``: ``pooled``, ``global`` or a partition. It is of the split that the
    summary is of.
    """
    prefix, report = result.prefix, result.evaluate
    by_whom: dict[str, Mapping[str, Any]] = {
        POOLED: pooled_states(report),
        GLOBAL: (result.global_metrics or {}).get(STATES, {}),
    }
    if len(report.states) <= MOST_CLIENTS:
        by_whom |= {str(partition): states for partition, states in report.states.items()}
    names = {metric.state for metric in problem.chosen.values()}
    found = {
        f"{who}/{name}": states[prefix + name]
        for who, states in by_whom.items()
        for name in sorted(names)
        if prefix + name in states
    }
    return array_file(STATES_FILE, found) if found else b""


def states_of(folder: Path) -> dict[str, dict[str, NDArray]]:
    """Return the states in a run's folder, by name, by whose they are; empty without the file."""
    try:
        found = load_file(regular(folder / STATES_FILE))
    except (OSError, SafetensorError):
        return {}
    states: dict[str, dict[str, NDArray]] = {}
    for key, array in found.items():
        name, state = key.split("/", 1)
        states.setdefault(name, {})[state] = array
    return states


T = TypeVar("T")
PERCENT = frozenset({"accuracy", "balanced-accuracy"})
"""The metrics that are shown in percent."""


def round_means(
    train: Mapping[str, object] | None,
    evaluate: Mapping[str, object] | None,
    report: PhaseReport,
    after_training: bool,
    problem: Problem,
) -> dict[str, float]:
    """Return a round's means over its clients, by metric.

    Parameters
    ----------
    train, evaluate : Mapping, optional
        The strategy's aggregate of each phase's metrics. It is used for all metrics except the held-out
        ones, the counts of examples, and those that the problem derives from the mean training metrics.
    report : PhaseReport
        The report with the held-out metrics, for `held_out_means`.
    after_training : bool
        Whether the report is of the train phase, whose ``num-examples`` are training examples.
    problem : Problem
        The problem, which names the held-out metrics.
    """
    counted = count_keys(problem)
    means = {
        name: float(value)
        for name, value in {**(train or {}), **(evaluate or {})}.items()
        if isinstance(value, Real) and name not in counted and not name.endswith("-examples")
    }
    means |= _derived(means, "train-", problem)
    return means | held_out_means(report.metrics.values(), after_training, problem)


def count_keys(problem: Problem) -> dict[str, str]:
    """Return, by held-out metric, the key of the number of predictions over which it is a mean."""
    return {prefix + name: f"{prefix or 'eval-'}examples" for prefix in HELD_OUT for name in problem.metrics}


def held_out_means(
    reported: Collection[MetricRecord], after_training: bool, problem: Problem
) -> dict[str, float]:
    """Return both means of every held-out metric a_i of K clients with n_i held-out examples each.

    ``NAME`` is the mean over held-out examples, ``sum_i n_i a_i / sum_i n_i``: each example (each character
    of a text) has equal weight. ``client-mean-NAME`` is the mean over clients, ``sum_i a_i / K``: each client
    has equal weight. Neither depends on the clients' weights in training. A metric that the problem derives
    from others, such as perplexity from the loss, is derived from their means.

    A metric that is undefined on a client's examples, such as the AUROC without examples of a class, is
    missing from its report, and this client from the means of that metric.

    n_i is the report's ``eval-examples`` (``test-examples`` for the metrics of a test set beside a validation
    set); without it, the ``num-examples`` of an evaluate reply. A client that reports no positive number of
    examples is left out of the mean over examples.
    """
    means: dict[str, float] = {}
    seldom = tuple(prefix for prefix in HELD_OUT[2:] if not any(f"{prefix}loss" in m for m in reported))
    for name, key in count_keys(problem).items():
        if name.startswith(seldom):
            continue
        instead = "num-examples" if key == "eval-examples" and not after_training else key
        pairs = [(number(m, name), number(m, key) or number(m, instead)) for m in reported]
        values = [(a, n) for a, n in pairs if a is not None]
        counted = [(a, n) for a, n in values if n is not None and n > 0]
        if counted:
            means[name] = sum(n * a for a, n in counted) / sum(n for _, n in counted)
        if values:
            means[CLIENT_MEAN + name] = sum(a for a, _ in values) / len(values)
    for prefix in HELD_OUT:
        means |= _derived(means, prefix, problem)
    return means


def _derived(means: Mapping[str, float], prefix: str, problem: Problem) -> dict[str, float]:
    """Return what the problem derives from the means of its metrics, whose names have the prefix."""
    found = {name: means[prefix + name] for name in problem.metrics if prefix + name in means}
    derived = problem.derived(found) if "loss" in found else {}
    return {prefix + name: value for name, value in derived.items()}


def pooled_metrics(report: PhaseReport, means: Mapping[str, float], problem: Problem) -> dict[str, float]:
    """Return each held-out metric of all clients' examples in one place, by name; empty without states.

    The problem's own metrics follow from means over examples: see `held_out_means`. Where cases are known one
    by one, metrics of scores are exact: see `exact.make_exact`.
    """
    found: dict[str, float] = {}
    states = pooled_states(report)
    for prefix in HELD_OUT:
        if all(prefix + metric.state in states for metric in problem.chosen.values()) and problem.chosen:
            own = (prefix + name for name in problem.metrics if name not in problem.further)
            found |= {name: means[name] for name in own if name in means}
            further = value_of_each(states, problem, prefix)
            found |= {prefix + name: value for name, value in further.items()}
    return found | report.pooled if found else found


def of_all_reports(
    reported: Collection[MetricRecord], states: Sequence[Mapping[str, NDArray]], problem: Problem
) -> dict[str, float | None]:
    """Return the metrics of several reports' examples in one place, by name; None for an undefined one.

    Parameters
    ----------
    reported : Collection[MetricRecord]
        The reports, with ``eval-examples``.
    states : Sequence[Mapping[str, NDArray]]
        The states of the further metrics, by name.
    problem : Problem
        The problem.
    """
    means = held_out_means(reported, True, problem)
    of_states = PhaseReport()
    of_states.states.update(enumerate(states))
    further = pooled_metrics(of_states, means, problem)
    own = {name: means.get(name) for name in problem.metrics if name not in problem.further}
    return {**own, **{name: further.get(name) for name in problem.further}}


def medians(reported: Collection[MetricRecord], problem: Problem) -> dict[str, float]:
    """Return ``client-median-NAME``, the median of each held-out metric over the clients that report it.

    Less than half of the clients cannot move it beyond what the others report.
    """
    found: dict[str, float] = {}
    for name in count_keys(problem):
        if values := [a for a in (number(m, name) for m in reported) if a is not None]:
            found[CLIENT_MEDIAN + name] = float(np.median(values))
    return found


def jain(values: ArrayLike) -> float | None:
    """Return Jain's index ``(sum_i x_i)^2 / (n sum_i x_i^2)``: 1 if all are equal, 1/n if all but one are 0.

    R. Jain, D. Chiu and W. Hawe: A Quantitative Measure of Fairness and Discrimination for Resource
    Allocation in Shared Computer Systems. DEC-TR-301, 1984.

    Parameters
    ----------
    values : ArrayLike
        The value of each client, (n,).

    Returns
    -------
    float or None
        None without values, or with one that is negative or not finite: there the index says nothing.
    """
    x = np.asarray(values, np.float64)
    if not len(x) or not np.isfinite(x).all() or (x < 0).any():
        return None
    if not (greatest := x.max()):
        return 1.0
    x = x / greatest  # of tiny values the squares would be 0
    return float(min(x.sum() ** 2 / (len(x) * (x**2).sum()), 1.0))


@np.errstate(invalid="ignore")
def spread(reported: Collection[MetricRecord], problem: Problem) -> dict[str, float]:
    """Return the spread of each held-out metric over the K clients that report it, equally weighted.

    ``worst-client-NAME`` is the worst value: the lowest accuracy, the highest loss. ``worst-tenth-NAME`` is
    the mean of the ``max(1, round(K / 10))`` worst. ``client-std-NAME`` is the population standard deviation,
    ``sqrt(sum_i (a_i - mean)^2 / K)``.
    """
    found: dict[str, float] = {}
    for prefix in ("", f"{TEST}-"):
        for metric in problem.metrics:
            name = prefix + metric
            values = np.sort([a for a in (number(m, name) for m in reported) if a is not None])
            if not len(values):
                continue
            worst_first = values if metric in problem.higher_is_better else values[::-1]
            found[WORST + name] = float(worst_first[0])
            found[WORST_TENTH + name] = float(worst_first[: max(1, round(len(values) / 10))].mean())
            found[DEVIATION + name] = float(values.std())
    return found


def number(metrics: MetricRecord, key: str) -> float | None:
    """Return a scalar metric as a float; None if it is missing or a list."""
    value = metrics.get(key)
    return None if value is None or isinstance(value, list) else float(value)


def metric_values(problem: Problem, metrics: Mapping[str, T], prefix: str) -> dict[str, T | None]:
    """Return the problem's metrics by name, without the prefix; None for a missing one."""
    return {name: metrics.get(prefix + name) for name in problem.metrics}


def percent(name: str) -> int:
    """Return the factor by which a metric is shown: 100 for those in `PERCENT`, else 1."""
    return 100 if name in PERCENT else 1


def shown(name: str, value: float | None, digits: int | None = None) -> str:
    """Return a metric as text, some in `PERCENT`, perhaps with so many decimals; empty for None."""
    if value is None:
        return ""
    if name in PERCENT:
        return f"{100 * value:.1f} %"
    return f"{value:.4g}" if digits is None else f"{value:.{digits}f}"


WORDS = {
    "expected-over-observed": "expected over observed events",
    "sensitivity-at": "sensitivity at specificity",
    "balanced-accuracy": "balanced accuracy",
    "average-precision": "average precision",
    "surface-dice": "surface Dice",
    "case-dice": "Dice by case",
    "specificity": "specificity",
    "sensitivity": "sensitivity",
    "auroc": "AUROC",
    "brier": "Brier score",
    "dice": "Dice",
    "hd95": "HD95",
    "rmse": "RMSE",
    "ece": "ECE",
    "iou": "IoU",
    "mae": "MAE",
    "f1": "F1",
    "r2": "R²",
}
"""By their names; longer ones first, since some begin with others."""
MOST_DECIMALS = 6


def spelt(name: str) -> str:
    """Return a metric as papers call it: ``auroc-tube`` is "AUROC, tube"; others as they are.

    What is after a colon stands in brackets, but for a number: ``sensitivity-at:0.9`` is "sensitivity at
    specificity 0.9".
    """
    for key, words in WORDS.items():
        rest = name.removeprefix(key)
        if rest == name or rest[:1] not in ("", ":", "-"):
            continue
        argument, dash, of_class = rest.partition("-")
        if argument := argument.removeprefix(":"):
            argument = f" {argument}" if argument.replace(".", "").isdigit() else f" ({argument})"
        return f"{words}{argument}{f', {of_class}' if dash else ''}"
    return name


def with_unit(name: str) -> str:
    """Return a metric as an axis has it, `spelt` with its unit: "accuracy, %"."""
    return f"{spelt(name)}, %" if percent(name) == 100 else spelt(name)


def heading(name: str) -> str:
    """Return a metric `spelt` at the beginning of a heading: "Loss", "IoU"."""
    words = spelt(name)
    return words[:1].upper() + words[1:]


def decimals(name: str, values: Iterable[float | None]) -> int:
    """Return how many decimals all values of a metric have: four digits of the largest, three below 1.

    Those in percent have one.
    """
    if percent(name) == 100:
        return 1
    largest = max((abs(v) for v in values if v is not None and math.isfinite(v)), default=0.0)
    if not largest:
        return 3
    place = math.floor(math.log10(largest))
    return min(MOST_DECIMALS, max(0, (3 if place >= 0 else 2) - place))
