"""How often 95 % intervals hold the true value: every metric that has one, in the sizes that clinics have.

    python benchmarks/intervals.py

A cell of the tables is the percentage of draws whose interval holds the true value, which is that of a large
sample. It is empty where more than half of the draws have no interval, for want of events.

- two classes: so many patients, a share of them ill, one picture each or three; three models;
- numbers: errors that are normal, and with long tails;
- means of single cases: Dice coefficients, and distances with long tails (HD95);
- means over sites, a tenth of whose patients are ill;
- by how much estimates that are biased are wrong on average: the ECE of a calibrated model, and what follows
  from a threshold that was chosen on the same cases.

``--only sites`` prints one table, ``--cells 0,1`` some of its rows.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from clients.problems.metrics import METRICS as OF_RUNS
from clients.problems.metrics import Predicted
from clients.problems.metrics.base import CLASSES, NUMBERS
from fedbn_flower.study.intervals import LENGTH, OWN
from fedbn_flower.study.statistics.case_metrics import METRICS, CaseMetric, Mean, OfCurve, OfStates
from fedbn_flower.study.statistics.cases import Cases
from fedbn_flower.study.statistics.intervals import Interval, intervals_of_cases

Draw = Callable[[np.random.Generator, int], Cases]
"""Draws cases of so many times as many patients."""
MANY = 60_000  # patients from whom a true value is taken
DRAWS = 200  # of a bootstrap
TWO = Predicted(CLASSES, 2, thresholds=200)
OF_TWO: Mapping[str, CaseMetric] = {
    **METRICS,
    "loss": OWN[CLASSES]["loss"],
    "balanced-accuracy": OfStates(OF_RUNS["balanced-accuracy"](TWO)),
    "f1": OfStates(OF_RUNS["f1"](TWO)),
    "average-precision": OfCurve(OF_RUNS["average-precision"](TWO)),
    "sensitivity-at:0.9": OfCurve(OF_RUNS["sensitivity-at"](TWO, "0.9")),
}
OF_NUMBERS: Mapping[str, CaseMetric] = {
    **OWN[NUMBERS],
    "rmse": OfStates(OF_RUNS["rmse"](Predicted(NUMBERS, 1))),
    "r2": OfStates(OF_RUNS["r2"](Predicted(NUMBERS, 1))),
}
SIZES = (
    (100, 0.03),
    (200, 0.025),
    (200, 0.04),
    (60, 0.1),
    (100, 0.1),
    (200, 0.1),
    (200, 0.25),
    (40, 0.5),
    (1000, 0.05),
)
MODELS = {
    "AUROC 0.76": (1.0, 1.0),
    "AUROC 0.92": (2.0, 1.0),
    "AUROC 0.81, the ill twice as spread": (2.0, 2.0),
}
"""Of scores on the scale of log-odds: by how many deviations those of the ill are higher, and how many times
as spread."""


def cases_of(targets: NDArray, scores: NDArray, groups: NDArray, sites: NDArray | None = None) -> Cases:
    """Return cases, those of a site side by side."""
    sites = np.zeros(len(targets), int) if sites is None else sites
    names, counts = np.unique(sites, return_counts=True)
    first = np.array([groups[sites == name].min() for name in names])
    return Cases(
        targets,
        scores,
        groups - np.repeat(first, counts),
        tuple(map(str, names)),
        tuple(np.cumsum(counts).tolist()),
    )


def of_two_classes(
    patients: Sequence[int], share: float, separation: float, spread: float, pictures: int = 1
) -> Draw:
    """Draw patients of sites; with several pictures, half of a score's variance is the patient's."""

    def draw(rng: np.random.Generator, times: int) -> Cases:
        site = np.repeat(np.repeat(np.arange(len(patients)), np.array(patients) * times), pictures)
        number = sum(patients) * times
        group = np.repeat(np.arange(number), pictures)
        ill = (rng.random(number) < share).astype(int)[group]
        own, shared = rng.normal(size=len(group)), rng.normal(size=number)[group]
        noise = own if pictures == 1 else np.sqrt(0.5) * (own + shared)
        noise = noise * np.where(ill == 1, spread, 1)
        odds = separation * (noise + separation * (ill - 0.5)) + np.log(share / (1 - share)) / 2
        return cases_of(ill, expit(odds), group, site)

    return draw


def of_numbers(patients: int, freedom: float) -> Draw:
    """Draw numbers, and predictions whose errors are Student's t."""

    def draw(rng: np.random.Generator, times: int) -> Cases:
        targets = rng.normal(size=patients * times)
        errors = rng.standard_t(freedom, size=len(targets)) / 2
        return cases_of(targets, targets + errors, np.arange(len(targets)))

    return draw


def of_values(patients: int, value: Callable[[NDArray], NDArray], pictures: int = 1) -> Draw:
    """Draw a function of normal numbers for each case."""

    def draw(rng: np.random.Generator, times: int) -> Cases:
        group = np.repeat(np.arange(patients * times), pictures)
        own, shared = rng.normal(size=len(group)), rng.normal(size=patients * times)[group]
        noise = own if pictures == 1 else np.sqrt(0.5) * (own + shared)
        return cases_of(np.zeros(len(group)), value(noise), group)

    return draw


def coverage(
    draw: Draw, metrics: Mapping[str, CaseMetric], repetitions: int, *of: str
) -> dict[tuple[str, str], list[bool]]:
    """Return of each part and metric whether the true value is held, of the draws with an interval."""
    rng = np.random.default_rng(0)
    small = draw(rng, 1)
    large = draw(rng, -(-MANY // len(small)))
    true = {
        (part, name): metric.value(large)
        if part == "pooled"
        else np.mean([metric.value(site) for site in large])
        for part in of
        for name, metric in metrics.items()
    }
    found: dict[tuple[str, str], list[bool]] = {key: [] for key in true}
    for repetition in range(repetitions):
        intervals = intervals_of_cases(draw(rng, 1), metrics, repetition, DRAWS)
        for part in of:
            for name, one in intervals[part].items():
                assert isinstance(one, Interval)
                if not np.isnan(one.low):
                    found[part, name].append(bool(one.low <= true[part, name] <= one.high))
    return found


def rows_of_two() -> dict[str, Draw]:
    """Return draws of two classes by what they are called."""
    single = {
        f"{n * share:g} ill of {n}, {words}": of_two_classes((n,), share, *model)
        for n, share in SIZES
        for words, model in MODELS.items()
    }
    by_patient = {
        f"{n * share:g} ill of {n}, 3 pictures each": of_two_classes((n,), share, 2.0, 1.0, pictures=3)
        for n, share in SIZES[3:8]
    }
    return single | by_patient


def rows_of_numbers() -> dict[str, Draw]:
    """Return draws of numbers."""
    kinds = {"normal errors": 1e9, "errors of long tails (t with 3)": 3.0}
    return {f"{n} patients, {kind}": of_numbers(n, t) for n in (10, 20, 50, 200) for kind, t in kinds.items()}


def _dice(noise: NDArray) -> NDArray:
    return np.asarray(expit(2 + 1.2 * noise))


def rows_of_values() -> dict[str, Draw]:
    """Return draws of masks: Dice coefficients around 0.85; HD95 is a length."""
    return {
        f"{n} patients{of}": of_values(n, _dice, pictures)
        for pictures, of in ((1, ""), (3, " with 3 pictures"))
        for n in (5, 10, 20, 50, 200)
    }


MEANS: Mapping[str, CaseMetric] = {
    "Dice": Mean(lambda cases: cases.scores),
    "HD95": Mean(lambda cases: np.exp(2.5 * np.log(1 / cases.scores - 1) / 3 + 2), bounds=LENGTH),
}


def rows_of_sites() -> dict[str, Draw]:
    """Return draws of several sites."""
    return {
        f"{len(sites)} sites of {sites[0]} to {sites[-1]}, {100 * share:g} % ill{of}": of_two_classes(
            sites, share, 2.0, 1.0, pictures
        )
        for pictures, of in ((1, ""), (3, ", 3 pictures"))
        for sites in ((20, 30, 40), (30, 60, 100), (100, 150, 200), (25,) * 10)
        for share in (0.1, 0.5)
    }


TABLES: Mapping[str, tuple[Callable[[], dict[str, Draw]], Mapping[str, CaseMetric], str]] = {
    "classes": (rows_of_two, OF_TWO, "pooled"),
    "numbers": (rows_of_numbers, OF_NUMBERS, "pooled"),
    "masks": (rows_of_values, MEANS, "pooled"),
    "sites": (rows_of_sites, METRICS, "mean"),
}


def text(held: Sequence[bool], repetitions: int) -> str:
    """Return the percentage that holds; empty where too few draws have an interval."""
    return f"{100 * np.mean(held):.0f}" if 2 * len(held) > repetitions else ""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--only", choices=TABLES)
    parser.add_argument("--cells", default="")
    given = parser.parse_args()
    for name in [given.only] if given.only else TABLES:
        rows, metrics, of = TABLES[name]
        print(f"\n| {name} | {' | '.join(metrics)} |\n|{'---|' * (1 + len(metrics))}", flush=True)
        chosen = {int(number) for number in given.cells.split(",") if number}
        for number, (row, draw) in enumerate(rows().items()):
            if not chosen or number in chosen:
                held = coverage(draw, metrics, given.repetitions, of)
                cells = (text(held[of, metric], given.repetitions) for metric in metrics)
                print(f"| {row} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
