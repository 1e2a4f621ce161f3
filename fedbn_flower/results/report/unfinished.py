"""Say where a run or a sweep may have ended too soon: a curve still rises, a best value is at the edge."""

from collections.abc import Sequence
from contextlib import suppress
from statistics import mean

from ...core.ground.columns import HeldOut
from ...records.metrics import heading, shown
from ..run_reader import Run
from .runs_by_seed import Group, headline

FEWEST_ROUNDS = 5
SHARE = 0.1
"""Of all that was gained since the first round, what the last part may add at most."""
FEWEST_VALUES = 3
WHICH_CASES = [held_out.one for held_out in HeldOut]


def still_rising(run: Run) -> str:
    """Return a line if the main metric is best in the last round, and gained much in the last fifth.

    That is the mean of the last fifth of the rounds against that of the fifth before.
    """
    metric = run.main_metric
    _, column = headline([Group({}, [run])], metric)
    points = run.points(column)
    if len(points) < FEWEST_ROUNDS or not run.summary.rounds or run.told:  # which is better, nobody says
        return ""
    sign = 1 if run.higher_is_better(metric) else -1
    rounds, values = [*points], [sign * value for value in points.values()]
    part = max(1, len(values) // 5)
    last, before = mean(values[-part:]), mean(values[-2 * part : -part])
    gained = last - before
    if values[-1] < max(values) or gained <= SHARE * (max(values) - values[0]):
        return ""
    still = "rises" if sign > 0 else "falls"
    ends = " to ".join(shown(metric, sign * value) for value in (before, last))
    return (
        f"{heading(metric)} still {still} at the last round, {rounds[-1]} ({ends} over the last fifth): with "
        "more rounds it may be better."
    )


def unfinished(groups: Sequence[Group], metric: str) -> list[str]:
    """Return the lines of `at_edge`, and one on the groups whose runs are all `still_rising`."""
    labels = [group.label for group in groups if group.runs and all(map(still_rising, group.runs))]
    line = f"Still better at the last round, under every seed: {', '.join(labels)}; try more rounds."
    return [*at_edge(groups, metric), *([line] if labels else [])]


def at_edge(groups: Sequence[Group], metric: str) -> list[str]:
    """Return a line for each swept number of which the best cell has the least or the greatest value."""
    column, _ = headline(groups, metric)
    found = {i: values for i, group in enumerate(groups) if (values := group.values(metric).get(column))}
    if len(found) < FEWEST_VALUES:
        return []
    higher = any(run.higher_is_better(metric) for group in groups for run in group.runs)
    best = groups[(max if higher else min)(found, key=lambda i: mean(found[i]))]
    lines = []
    for key, value in best.names.items():
        if key in WHICH_CASES:  # numbers that are names
            continue
        with suppress(ValueError):
            numbers = sorted({float(group.names[key]) for group in groups})
            if len(numbers) >= FEWEST_VALUES and float(value) in (numbers[0], numbers[-1]):
                which = "least" if float(value) == numbers[0] else "greatest"
                lines.append(
                    f"The best {key}, {value}, is the {which} of the {len(numbers)} that were tried: beyond "
                    "it may be a better one."
                )
    return lines
