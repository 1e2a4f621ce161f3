"""How often equal methods have a winner; ``intervals.py`` has how often intervals of a metric hold.

    python benchmarks/winners.py

- two equal models on the same cases: how often a test at 5 % calls them different.
- equal cells of a sweep: in how many sweeps one of them is told from the best.
- cells that are behind: how often they are told from the best.
- differences of cells: in how many sweeps all intervals hold the true values together.

``--only winners`` measures one of the tables alone.
"""

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit

from fedbn_flower.study.statistics.case_metrics import METRICS, predicted
from fedbn_flower.study.statistics.cases import Cases
from fedbn_flower.study.statistics.paired import (
    cannot_be_told_from_best,
    delong_test,
    mcnemar,
    paired_bootstrap,
    paired_t_tests,
    score_test,
    told_from_best,
)


@dataclass(frozen=True)
class Setting:
    """Sites whose cases are drawn.

    Parameters
    ----------
    patients : tuple[int, ...]
        The number of patients of each site.
    separation : float
        How many deviations the scores of positive cases are higher.
    prevalence : float
        The share of patients that are positive.
    """

    patients: tuple[int, ...]
    separation: float = 1.5
    prevalence: float = 0.4

    def draw(self, rng: np.random.Generator) -> pd.DataFrame:
        """Return a table of cases; scores are worse the later the site."""
        site = np.repeat(np.arange(len(self.patients)), self.patients)
        target = (rng.random(len(site)) < self.prevalence).astype(int)
        odds = self.separation * (target - 0.5) + (1 + 0.2 * site) * rng.normal(size=len(site))
        table = {"site": site, "id": np.arange(len(site)), "target": target}
        return pd.DataFrame({**table, "score": expit(1.5 * odds)})


SETTINGS: Mapping[str, Setting] = {
    "one site, 40 patients": Setting((40,)),
    "sites of 30, 60 and 100 patients": Setting((30, 60, 100)),
}


def differences(setting: Setting, repetitions: int, seed: int = 0) -> dict[str, float]:
    """Return in which share of draws each test calls two equal models different at 5 %.

    Their scores of a case correlate by 0.5.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, list[bool]] = {}
    for repetition in range(repetitions):
        first = setting.draw(rng)
        odds = np.log(first.score / (1 - first.score)) / 1.5 - setting.separation * (first.target - 0.5)
        of_site = 1 + 0.2 * first.site
        other = 0.5 * odds + np.sqrt(0.75) * of_site * rng.normal(size=len(first))
        second = first.assign(score=expit(1.5 * (setting.separation * (first.target - 0.5) + other)))
        right = [predicted(Cases.of(frame)) == frame.target.to_numpy() for frame in (first, second)]
        p_values = {
            "McNemar, exact": mcnemar(*right).exact,
            "McNemar, mid-p": mcnemar(*right).mid_p,
            "McNemar, score": score_test(*right).p_value,
            "DeLong": delong_test(first.target, first.score, second.score).p_value,
            "bootstrap, accuracy": paired_bootstrap(first, second, METRICS["accuracy"], repetition).p_value,
            "bootstrap, AUROC": paired_bootstrap(first, second, METRICS["auroc"], repetition).p_value,
            "bootstrap, mean Brier": paired_bootstrap(
                first, second, METRICS["brier"], repetition, "mean"
            ).p_value,
        }
        for name, p_value in p_values.items():
            found.setdefault(name, []).append(p_value < 0.05)
    return {name: float(np.mean(some)) for name, some in found.items()}


def _discordant(rng: np.random.Generator, k: int, n: int, cases: int) -> NDArray[np.float64]:
    """Return accuracies of 40 cases, of which so many are each right for half of the cells, drawn anew."""
    right = rng.random((cases, k, n)).argsort(axis=1) < k // 2
    return np.asarray(right.sum(axis=0) / 40)


Noise = Callable[[np.random.Generator, int, int], NDArray[np.float64]]
NOISES: Mapping[str, Noise] = {
    "normal": lambda rng, k, n: rng.normal(size=(k, n)),
    "normal, deviations 0.1 to 1": lambda rng, k, n: (
        rng.normal(size=(k, n)) * np.geomspace(0.1, 1, k)[:, None]
    ),
    "normal, one cell ten times as noisy": lambda rng, k, n: (
        rng.normal(size=(k, n)) * np.append(1, np.full(k - 1, 0.1))[:, None]
    ),
    "skewed (exponential)": lambda rng, k, n: -rng.exponential(size=(k, n)),
    "long tails (t with 3)": lambda rng, k, n: rng.standard_t(3, size=(k, n)),
    "accuracies of 40 cases": lambda rng, k, n: rng.binomial(40, 0.9, size=(k, n)) / 40,
    "accuracies that differ in one case": lambda rng, k, n: _discordant(rng, k, n, 1),
    "accuracies that differ in three cases": lambda rng, k, n: _discordant(rng, k, n, 3),
}
RESOLUTIONS = {name: 1 / 40 for name in NOISES if name.startswith("accuracies")}
"""What one held-out case changes a value by."""
UNEQUAL: Mapping[str, Noise] = {
    "skewed, one cell ten times as noisy": lambda rng, k, n: (
        (1 - rng.exponential(size=(k, n))) * np.append(1, np.full(k - 1, 0.1))[:, None]
    ),
}
"""Cells that are equal in their mean alone: what no test of few values withstands."""


def _told_by_all_pairs(values: NDArray[np.float64], resolution: float = 0.0) -> bool:
    found = cannot_be_told_from_best(dict(enumerate(values)), resolution=resolution)
    return len(found.alike) < len(values)


def _told_by_pairs_with_best(values: NDArray[np.float64]) -> bool:
    best = int(values.mean(axis=1).argmax())
    others = np.delete(values, best, axis=0)
    with np.errstate(all="ignore"):
        return bool((stats.ttest_rel(values[best], others, axis=-1).pvalue < 0.05 / len(others)).any())


def _told_by_wilcoxon(values: NDArray[np.float64]) -> bool:
    best = int(values.mean(axis=1).argmax())
    others = np.delete(values, best, axis=0)
    with np.errstate(all="ignore"):
        found = stats.wilcoxon(values[best] - others, axis=1, method="exact").pvalue
    return bool((found < 0.05 / math.comb(len(values), 2)).any())


def _told_by_tukey(values: NDArray[np.float64]) -> bool:
    """Tukey's test with one deviation for all cells, the seeds being blocks."""
    k, n = values.shape
    residuals = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0) + values.mean()
    freedom = (k - 1) * (n - 1)
    width = np.sqrt((residuals**2).sum() / freedom / n)
    means = values.mean(axis=1)
    return bool((means.max() - means.min()) / width > _studentized(k, freedom))


def _studentized(k: int, freedom: int, found: dict[tuple[int, int], float] = {}) -> float:  # noqa: B006
    if (k, freedom) not in found:
        found[k, freedom] = float(stats.studentized_range.ppf(0.95, k, freedom))
    return found[k, freedom]


OURS = "ours"
TESTS: Mapping[str, Callable[[NDArray[np.float64]], bool]] = {
    OURS: _told_by_all_pairs,
    "t, Bonferroni, all pairs": _told_by_all_pairs,
    "t, Bonferroni, pairs with the best": _told_by_pairs_with_best,
    "Wilcoxon, Bonferroni, all pairs": _told_by_wilcoxon,
    "Tukey": _told_by_tukey,
}


def false_winners(test: str, noise: str, cells: int, seeds: int, sweeps: int = 1000) -> float:
    """Return in which share of sweeps of equal cells one is told from the best; seeds are easy or hard.

    The draws of each kind of noise are its own. Ours is the t-test that knows what one case is worth.
    """
    kinds = {**NOISES, **UNEQUAL}
    rng = np.random.default_rng([cells, seeds, list(kinds).index(noise)])
    drawn = (kinds[noise](rng, cells, seeds) + rng.normal(size=seeds) for _ in range(sweeps))
    if test == OURS:
        return float(np.mean([_told_by_all_pairs(values, RESOLUTIONS.get(noise, 0.0)) for values in drawn]))
    return float(np.mean([TESTS[test](values) for values in drawn]))


def false_winners_of_two(noise: str, seeds: int, sweeps: int = 200_000) -> float:
    """Return the same of ours and two cells, of so many sweeps at once that chance moves it by 0.05 %."""
    kinds = {**NOISES, **UNEQUAL}
    rng = np.random.default_rng([seeds, list(kinds).index(noise)])
    cells = kinds[noise](rng, 2, sweeps * seeds).reshape(2, sweeps, seeds)
    differences = cells[0] - cells[1]
    means, errors = differences.mean(axis=1), stats.sem(differences, axis=1)
    beyond = np.abs(means) > stats.t.ppf(0.975, seeds - 1) * errors
    return float(np.mean(beyond & (np.abs(means) > RESOLUTIONS.get(noise, 0.0) + 1e-9)))


def told(behind: float, cells: int, seeds: int, sweeps: int = 1000) -> float:
    """Return how often a cell that is ``behind`` by so many deviations (over seeds) is told from the best.

    The others are as good as the best.
    """
    rng = np.random.default_rng([cells, seeds])
    found = 0
    for _ in range(sweeps):
        values = rng.normal(size=(cells, seeds))
        values[0] -= behind
        found += 0 not in cannot_be_told_from_best(dict(enumerate(values))).alike
    return found / sweeps


def hold(noise: str, cells: int, seeds: int, sweeps: int = 1000) -> tuple[float, float]:
    """Return in which share of sweeps all differences from the best are in their intervals, and all pairs'.

    The cells' true means are apart by half of the noise's deviation or so; seeds are easy or hard.
    """
    rng = np.random.default_rng([cells, seeds, list(NOISES).index(noise)])
    means = np.arange(cells) / 2
    held = []
    for _ in range(sweeps):
        values = NOISES[noise](rng, cells, seeds) + means[:, None] + rng.normal(size=seeds)
        pairs = paired_t_tests(dict(enumerate(values)), RESOLUTIONS.get(noise, 0.0))
        best, _, _, behind = told_from_best(pairs)
        from_best = ((found, means[cell] - means[best]) for cell, found in behind.items())
        every = ((found, means[i] - means[j]) for (i, j), found in pairs.every().items())
        held.append([all(f.low <= true <= f.high for f, true in of) for of in (from_best, every)])
    return tuple(np.mean(held, axis=0).tolist())


def _row(*texts: object) -> None:
    print(f"| {' | '.join(map(str, texts))} |", flush=True)


def _header(*names: str) -> None:
    print()
    _row(*names)
    _row(*("---" for _ in names))


def print_models(times: int) -> None:
    """Print how often two equal models are called different."""
    found = {name: differences(SETTINGS[name], times) for name in list(SETTINGS)[:1] + list(SETTINGS)[3:4]}
    _header("two equal models", *next(iter(found.values())))
    for name, shares in found.items():
        _row(name, *(f"{100 * share:.1f}" for share in shares.values()))


def print_winners(times: int) -> None:
    """Print how often equal cells have a winner."""
    _header("noise over seeds", "cells", "seeds", *TESTS)
    for noise in (*NOISES, *UNEQUAL):
        for cells in (2, 9):
            for seeds in (5, 20):
                shares = (false_winners(test, noise, cells, seeds, times) for test in TESTS)
                _row(noise, cells, seeds, *(f"{100 * share:.1f}" for share in shares))
    _header("two rows, 200,000 sweeps", *(f"{seeds} seeds" for seeds in (5, 8, 10, 20)))
    for noise in (*NOISES, *UNEQUAL):
        shares = (false_winners_of_two(noise, seeds) for seeds in (5, 8, 10, 20))
        _row(noise, *(f"{100 * share:.2f}" for share in shares))


def print_told(times: int) -> None:
    """Print how often cells that are behind are told from the best."""
    _header("cells", "seeds", *(f"{behind} deviations behind" for behind in (1, 2, 3, 5)))
    for cells in (2, 4, 9):
        for seeds in (5, 10, 20):
            shares = (told(behind, cells, seeds, times) for behind in (1, 2, 3, 5))
            _row(cells, seeds, *(f"{100 * share:.0f}" for share in shares))


def print_hold(times: int) -> None:
    """Print how often the intervals of differences hold together."""
    _header("noise over seeds", "cells", "seeds", "all differences from the best", "all pairs")
    for noise in NOISES:
        for cells in (2, 9):
            for seeds in (5, 20):
                shares = hold(noise, cells, seeds, times)
                _row(noise, cells, seeds, *(f"{100 * share:.1f}" for share in shares))


TABLES = {"models": print_models, "winners": print_winners, "told": print_told, "hold": print_hold}


def main() -> None:
    """Measure everything and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--only", choices=TABLES)
    given = parser.parse_args()
    for name, table in TABLES.items():
        if given.only in (None, name):
            table(given.repetitions)


if __name__ == "__main__":
    main()
