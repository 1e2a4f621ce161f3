"""Recalibrate scores at a site: fit to its validation cases, apply to its test cases; neither leaves it.

Scores are probabilities. Their logarithms are the logits up to a constant of each case, which softmax
ignores. Of each label there are two classes, no and yes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients import Problem
from fedbn_flower.clients.problems.evaluation import ROWS, metrics_of_scores
from fedbn_flower.clients.problems.segmentation import SCORES, TARGETS

from ..core.ground.columns import RECALIBRATED
from ..core.ground.wire import CASES, RECALIBRATE, STATES
from ..records.cases import SCORE

if TYPE_CHECKING:
    from pandas import DataFrame

Scores = NDArray[np.float64]
Map = Callable[[Scores], Scores]
"""Recalibrates probabilities of classes, (n, k)."""
PARAMETERS = {"temperature": "temperature", "isotonic": "steps", "threshold": "threshold"}
"""What a method finds, by its name."""
TEMPERATURES = (0.1, 10.0)
"""The least and the greatest temperature: with few cases, all of them right, there is no least best one."""
LEAST = float(np.finfo(np.float32).tiny)
"""The probability that one of 0 counts as, where it has a logarithm."""
ROUNDING = 1e-12
EPSILON = float(np.finfo(np.float64).epsneg)


@dataclass(frozen=True)
class Recalibration:
    """A recalibration that was fitted.

    Parameters
    ----------
    found : tuple[float, ...]
        Of the classes one parameter, of labels one each; see `PARAMETERS`. NaN where scores stay as they are,
        for want of cases of two classes.
    maps : tuple[Map, ...]
        What recalibrates the probabilities of the classes, or of no and yes of each label.
    labels : bool
        Whether scores are of labels.
    """

    found: tuple[float, ...]
    maps: tuple[Map, ...]
    labels: bool

    @classmethod
    def fitted(cls, method: str, scores: Scores, targets: NDArray) -> Recalibration:
        """Fit a method to cases.

        Parameters
        ----------
        method : str
            One of `PARAMETERS`; of more than two classes only ``temperature``.
        scores : NDArray
            Probabilities of the classes or of the labels, float64 (n, k).
        targets : NDArray
            Class numbers, int64 (n,), or labels 0 or 1, (n, k).

        Raises
        ------
        ValueError
            Of more than two classes, for another method than ``temperature``.
        """
        labels = targets.ndim == 2
        parts = list(zip(_of_labels(scores), targets.T, strict=True)) if labels else [(scores, targets)]
        if method != "temperature" and any(part.shape[1] != 2 for part, _ in parts):
            raise ValueError(f"{method} is of two classes or labels, not of {scores.shape[1]} classes")
        found = [METHODS[method](*part) if len(np.unique(part[1])) > 1 else UNCHANGED for part in parts]
        return cls(tuple(parameter for parameter, _ in found), tuple(one for _, one in found), labels)

    def __call__(self, scores: Scores) -> Scores:
        """Return recalibrated scores, float64 (n, k), none of which is 0 or 1."""
        if self.labels:
            pairs = zip(self.maps, _of_labels(scores), strict=True)
            found = np.stack([one(part)[:, 1] for one, part in pairs], axis=1)
        else:
            found = self.maps[0](scores)
        return np.clip(found, LEAST, 1 - EPSILON)


def _of_labels(scores: Scores) -> list[Scores]:
    return [np.stack([1 - column, column], axis=1) for column in scores.T]


def tempered(scores: Scores, temperature: float) -> Scores:
    """Return ``softmax(log p / T)`` of probabilities p, (n, k)."""
    from scipy.special import softmax

    return np.asarray(softmax(np.log(np.maximum(scores, LEAST)) / temperature, axis=1), np.float64)


def negative_log_likelihood(scores: Scores, targets: NDArray) -> float:
    """Return the mean of ``-log p`` of the cases' own classes."""
    return float(-np.log(np.maximum(scores[np.arange(len(targets)), targets], LEAST)).mean())


def _temperature(scores: Scores, targets: NDArray) -> tuple[float, Map]:
    """Temperature scaling (Guo et al. 2017): the T of the least NLL, which is convex in 1 / T."""
    from scipy.optimize import minimize_scalar

    def of(logarithm: float) -> float:
        return negative_log_likelihood(tempered(scores, math.exp(logarithm)), targets)

    bounds = tuple(map(math.log, TEMPERATURES))
    least = minimize_scalar(of, bounds=bounds, method="bounded", options={"xatol": 1e-9})
    found = float(math.exp(least.x)) if least.fun <= of(0.0) else 1.0
    return found, partial(tempered, temperature=found)


def _isotonic(scores: Scores, targets: NDArray) -> tuple[float, Map]:
    """The monotone function of the score that is nearest to what happened (Zadrozny and Elkan 2002).

    Of n cases none is more certain than Laplace's 1 / (n + 2): the ends of the function are often 0 and 1.
    """
    from sklearn.isotonic import IsotonicRegression

    fitted = IsotonicRegression(out_of_bounds="clip").fit(scores[:, 1], targets)
    margin = 1 / (len(targets) + 2)

    def apply(scores: Scores) -> Scores:
        positive = np.clip(fitted.predict(scores[:, 1]), margin, 1 - margin)
        return np.stack([1 - positive, positive], axis=1)

    return float(len(np.unique(fitted.y_thresholds_))), apply


def _threshold(scores: Scores, targets: NDArray) -> tuple[float, Map]:
    """Youden's threshold, half-way down to the next lower score; odds are scaled so that it becomes 0.5.

    If no threshold is better than chance, it stays at 0.5.
    """
    from sklearn.metrics import roc_curve

    rates, sensitivities, thresholds = roc_curve(targets, scores[:, 1], drop_intermediate=False)
    found = sensitivities - rates
    index = int(np.argmax(found > found.max() - ROUNDING))
    if found[index] <= ROUNDING:
        return UNCHANGED
    threshold = float(thresholds[index] + thresholds[index + 1]) / 2
    return threshold, partial(shifted, threshold=threshold)


def shifted(scores: Scores, threshold: float) -> Scores:
    """Return the probabilities of two classes, the odds of the second times ``(1 - t) / t``, (n, 2)."""
    weighted = np.maximum(scores, LEAST) * (threshold, 1 - threshold)
    return np.asarray(weighted / weighted.sum(axis=1, keepdims=True), np.float64)


def _same(scores: Scores) -> Scores:
    return scores


UNCHANGED: tuple[float, Map] = (math.nan, _same)
METHODS: dict[str, Callable[[Scores, NDArray], tuple[float, Map]]] = {
    "temperature": _temperature,
    "isotonic": _isotonic,
    "threshold": _threshold,
}


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


def with_recalibrated(table: DataFrame) -> DataFrame | None:
    """Return a table with the recalibrated scores in place of the others, of the cases that have them.

    None if it has none.
    """
    names = [name for name in table.columns if name.partition("-")[0] == RECALIBRATED]
    if not names:
        return None
    plain = {name: SCORE + name.removeprefix(RECALIBRATED) for name in names}
    return table.drop(columns=[*plain.values()]).rename(columns=plain).dropna(subset=[*plain.values()])
