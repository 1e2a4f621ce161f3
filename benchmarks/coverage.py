"""How often equal methods have a winner; ``benchmarks/intervals.py`` has how often intervals hold.

    python benchmarks/coverage.py

- two equal models on the same cases: how often a test at 5 % calls them different.
- equal cells of a sweep: in how many sweeps one of them is told from the best.
- cells that are behind: how often they are told from the best.

``--only winners`` measures one of the tables alone.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit

from fedbn_flower.statistics.case_metrics import METRICS, predicted
from fedbn_flower.statistics.cases import Cases
from fedbn_flower.statistics.intervals import intervals, of_pooled_and_sites
from fedbn_flower.statistics.paired import (
    cannot_be_told_from_best,
    delong_test,
    holm,
    mcnemar,
    paired_bootstrap,
)

WHOM = ("client", "mean", "pooled")
MEASURED = ("accuracy", "sensitivity", "auroc", "brier")
MANY = 200_000  # groups of a site from which the true values are taken


@dataclass(frozen=True)
class Setting:
    """Sites whose cases are drawn.

    Parameters
    ----------
    groups : tuple[int, ...]
        The number of groups (patients) of each site.
    cases : int
        Cases of a group; half of the variance of a score is the group's.
    separation : float
        How many deviations the scores of positive cases are higher.
    prevalence : float
        The share of groups that are positive.
    """

    groups: tuple[int, ...]
    cases: int = 1
    separation: float = 1.5
    prevalence: float = 0.4

    def draw(self, rng: np.random.Generator, groups: tuple[int, ...] = ()) -> pd.DataFrame:
        """Return a table of cases; scores are worse the later the site."""
        groups = groups or self.groups
        site = np.repeat(np.arange(len(groups)), groups)
        group = np.repeat(np.arange(len(site)), self.cases)
        target = (rng.random(len(site)) < self.prevalence).astype(int)[group]
        own, shared = rng.normal(size=len(group)), rng.normal(size=len(site))[group]
        noise = own if self.cases == 1 else np.sqrt(0.5) * (own + shared)
        odds = self.separation * (target - 0.5) + (1 + 0.2 * site[group]) * noise
        table = {"site": site[group], "id": np.arange(len(group)), "group": group, "target": target}
        return pd.DataFrame({**table, "score": expit(1.5 * odds)})

    def true_values(self, rng: np.random.Generator) -> dict[tuple[str, str], float]:
        """Return the metrics of a large sample by metric and `WHOM`; the client is the first site."""
        cases = Cases.of(self.draw(rng, (MANY // self.cases,) * len(self.groups)))
        weights = np.repeat(self.groups, np.diff((0, *cases.ends)))[None].astype(float)
        found = {}
        for name in MEASURED:
            values = of_pooled_and_sites(METRICS[name], cases, weights)[:, 0]
            true = (values[1], values[1:].mean(), values[0])
            found |= {(name, who): float(value) for who, value in zip(WHOM, true, strict=True)}
        return found


SETTINGS: Mapping[str, Setting] = {
    "one site, 40 patients": Setting((40,)),
    "one site, 200 patients, a tenth of them ill": Setting((200,), prevalence=0.1),
    "one site, 200 patients, AUROC 0.96": Setting((200,), separation=2.5, prevalence=0.2),
    "sites of 30, 60 and 100 patients": Setting((30, 60, 100)),
    "sites of 20, 30 and 40 patients of 3 pictures": Setting((20, 30, 40), cases=3),
    "ten sites of 25 patients of 2 pictures": Setting((25,) * 10, cases=2),
    "one site, 60 patients, AUROC 0.99": Setting((60,), separation=3.5),
}


def ours(frame: pd.DataFrame, seed: int) -> dict[tuple[str, str], tuple[float, float]]:
    """Return the intervals of `fedbn_flower.statistics`, by metric and `WHOM`."""
    found = intervals(frame, {name: METRICS[name] for name in MEASURED}, seed)
    by_whom = {"client": found["clients"]["0"], "mean": found["mean"], "pooled": found["pooled"]}
    return {(name, who): (i.low, i.high) for who in WHOM for name, i in by_whom[who].items()}


Method = Callable[[pd.DataFrame, int], dict[tuple[str, str], tuple[float, float]]]


def coverage(
    setting: Setting, method: Method, repetitions: int, seed: int = 0
) -> dict[tuple[str, str], float]:
    """Return in which share of draws the interval holds the true value, by metric and `WHOM`."""
    rng = np.random.default_rng(seed)
    true = setting.true_values(rng)
    holds: dict[tuple[str, str], list[bool]] = {key: [] for key in true}
    for repetition in range(repetitions):
        for key, (low, high) in method(setting.draw(rng), repetition).items():
            holds[key].append(low <= true[key] <= high)
    return {key: float(np.mean(found)) for key, found in holds.items() if found}


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
        return bool((holm(stats.ttest_rel(values[best], others, axis=-1).pvalue) < 0.05).any())


def _told_by_wilcoxon(values: NDArray[np.float64]) -> bool:
    best = int(values.mean(axis=1).argmax())
    first, second = np.triu_indices(len(values), 1)
    with np.errstate(all="ignore"):
        found = stats.wilcoxon(values[first] - values[second], axis=1, method="exact").pvalue
    p_values = holm(np.nan_to_num(found, nan=1.0))
    return bool((p_values[(first == best) | (second == best)] < 0.05).any())


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
    "t, Holm, all pairs": _told_by_all_pairs,
    "t, Holm, pairs with the best": _told_by_pairs_with_best,
    "Wilcoxon, Holm, all pairs": _told_by_wilcoxon,
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


TABLES = {"models": print_models, "winners": print_winners, "told": print_told}


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
