"""The means of what clients report, and their spread: the one definition of a round's ``loss``, ..."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import MetricRecord
from numpy.typing import NDArray

from fedbn_flower.clients import Problem
from fedbn_flower.strategies import PhaseReport
from fedbn_flower.strategies.messages.validation import MAX_WEIGHT
from fedbn_flower.strategies.messages.wire import CLASS_EXAMPLES, CLASS_HITS

from .columns import CLIENT_MEAN, DEVIATION, TEST, WORST, WORST_TENTH


def round_means(
    train: Mapping[str, object] | None,
    evaluate: Mapping[str, object] | None,
    report: PhaseReport,
    after_training: bool,
    problem: Problem,
) -> dict[str, float]:
    """A round's means over its clients, by metric.

    Parameters
    ----------
    train, evaluate : Mapping, optional
        What the strategy makes of the phases' metrics. It stands for all but the held-out figures, the
        counts of examples, and what the problem derives from the mean training figures.
    report : PhaseReport
        The report with the held-out figures, for `held_out_means`.
    after_training : bool
        Whether it is the train phase's, whose ``num-examples`` are training examples.
    problem : Problem
        What is learnt: its figures are the held-out ones.
    """
    counted = counts_of(problem)
    means = {
        name: float(value)
        for name, value in {**(train or {}), **(evaluate or {})}.items()
        if isinstance(value, int | float) and name not in counted and not name.endswith("-examples")
    }
    means |= _derived(means, "train-", problem)
    return means | held_out_means(report.metrics.values(), after_training, problem)


def counts_of(problem: Problem) -> dict[str, str]:
    """Where a report has the number of predictions that a held-out figure is a mean over, by figure."""
    return {name: "eval-examples" for name in problem.metrics} | {
        f"{TEST}-{name}": f"{TEST}-examples" for name in problem.metrics
    }


def held_out_means(
    reported: Collection[MetricRecord], after_training: bool, problem: Problem
) -> dict[str, float]:
    """Both means of every held-out figure a_i of clients with n_i held-out examples.

    Under the figure's own name its mean over held-out examples, ``sum_i n_i a_i / sum_i n_i``: each example
    (each character of a text) counts alike. Under ``client-mean-`` and its name the mean over clients,
    ``sum_i a_i / K``: each client counts alike. Neither depends on what weighs a client in training. What
    the problem derives from its other figures, as a perplexity from the loss, is derived from their means.

    n_i is the report's ``eval-examples`` (``test-examples`` for the test set's figures beside a validation
    set's); without it, the ``num-examples`` of an evaluate reply. A client that says no positive number
    of examples is not in the mean over examples.
    """
    means: dict[str, float] = {}
    for name, key in counts_of(problem).items():
        instead = "num-examples" if key == "eval-examples" and not after_training else key
        figures = [(number(m, name), number(m, key) or number(m, instead)) for m in reported]
        told = [(a, n) for a, n in figures if a is not None]
        counted = [(a, n) for a, n in told if n is not None and n > 0]
        if counted:
            means[name] = sum(n * a for a, n in counted) / sum(n for _, n in counted)
        if told:
            means[CLIENT_MEAN + name] = sum(a for a, _ in told) / len(told)
    for prefix in ("", f"{TEST}-"):
        means |= _derived(means, prefix, problem)
    return means


def _derived(means: Mapping[str, float], prefix: str, problem: Problem) -> dict[str, float]:
    """What the problem derives from the means of its figures, which stand under their names and a prefix."""
    found = {name: means[prefix + name] for name in problem.metrics if prefix + name in means}
    derived = problem.derived(found) if "loss" in found else {}
    return {prefix + name: value for name, value in derived.items()}


@np.errstate(invalid="ignore")
def spread(reported: Collection[MetricRecord], problem: Problem) -> dict[str, float]:
    """How far apart the K clients that report a held-out figure are; each counts alike.

    Under ``worst-client-`` and the figure's name the worst of them, which for an accuracy is the lowest and
    for a loss the highest; under ``worst-tenth-`` the mean of the ``max(1, round(K / 10))`` worst; under
    ``client-std-`` the population standard deviation, ``sqrt(sum_i (a_i - mean)^2 / K)``.
    """
    found: dict[str, float] = {}
    for prefix in ("", f"{TEST}-"):
        for figure in problem.metrics:
            name = prefix + figure
            told = np.sort([a for a in (number(m, name) for m in reported) if a is not None])
            if not len(told):
                continue
            worst_first = told if figure in problem.higher_is_better else told[::-1]
            found[WORST + name] = float(worst_first[0])
            found[WORST_TENTH + name] = float(worst_first[: max(1, round(len(told) / 10))].mean())
            found[DEVIATION + name] = float(told.std())
    return found


def class_counts(metrics: Mapping[str, object], prefix: str, classes: int) -> NDArray[np.int64] | None:
    """Hits and examples by class, int64 (2, classes), where these metrics hold such counts."""
    lists: list[Any] = [metrics.get(prefix + name) for name in (CLASS_HITS, CLASS_EXAMPLES)]
    if not all(isinstance(some, list) and len(some) == classes for some in lists):
        return None
    if not all(type(n) is int and 0 <= n <= MAX_WEIGHT for some in lists for n in some):
        return None
    return np.array(lists, np.int64)


def per_class(
    names: Sequence[str], counts: Sequence[NDArray[np.int64]], shared: bool = False
) -> dict[str, object] | None:
    """The accuracy on the examples of each class, ``sum_i hits_i / sum_i examples_i``; None where there are
    none, or nobody counted. ``examples`` are distinct ones: those of one client where all have the same
    (``shared``), else the sum."""
    if not counts:
        return None
    hits, answers = np.sum(counts, axis=0).tolist()
    accuracy = [h / n if n else None for h, n in zip(hits, answers, strict=True)]
    examples = np.max(counts, axis=0)[1].tolist() if shared else answers
    return {"names": list(names), "examples": examples, "accuracy": accuracy}


def number(metrics: MetricRecord, key: str) -> float | None:
    """A metric that is one number; None where there is none."""
    value = metrics.get(key)
    return None if value is None or isinstance(value, list) else float(value)


def figures_of(problem: Problem, metrics: Mapping[str, object], prefix: str) -> dict[str, object]:
    """The problem's figures under their plain names, without the prefix; None where there is none."""
    return {name: metrics.get(prefix + name) for name in problem.metrics}


def shown(name: str, value: float | None) -> str:
    """A figure for a person: an accuracy in percent."""
    if value is None:
        return ""
    return f"{100 * value:.1f} %" if name == "accuracy" else f"{value:.4g}"
