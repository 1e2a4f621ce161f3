"""How many held-out cases each site has, by class: what a metric by site is a metric of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ..core.stored import rows_of
from ..core.text import listed
from ..records.cases import ID, OF_CLASS, SCORE, SITE, TARGET, is_binary, predictions_of
from ..records.metrics import spelt
from ..records.summary import OfClasses
from .report.tables import Table
from .run_reader import Run

CASES, EVENTS = "held-out cases", "events"
ALL_SITES = "all sites"
MOST_SITES, MOST_CLASSES, MOST_NAMED = 40, 12, 5
DIVIDES = ("partition", "num-clients", "seed")
Counts = Mapping[str, Mapping[str, int]]
"""Cases by site and class; of numbers, the class is an empty text."""


def events_column(event: str) -> str:
    """Return the heading of a column of numbers of events, of which each is an ``event``."""
    return f"{EVENTS} ({event})"


def held_out_by_site(run: Run, new: bool = False) -> dict[str, dict[str, int]]:
    """Return the number of held-out cases by site and class; empty where a run did not count them.

    They are counted in ``predictions.parquet``, else in ``classes.csv``: those of sites that train, or of
    ``new`` ones.
    """
    table = predictions_of(run.folder, TARGET, new)
    classes = [] if table is None else [n.removeprefix(OF_CLASS) for n in table if n.startswith(OF_CLASS)]
    if table is None or not (classes or SCORE in table.columns):
        return {} if new else _from_classes(run)
    if not classes and is_binary(table):
        classes = run.outcomes if len(run.outcomes) == 2 else ["0", "1"]
    if not classes:
        return {str(site): {"": int(n)} for site, n in table.groupby(SITE, sort=False).size().items()}
    return {
        str(site): {name: int((targets == number).sum()) for number, name in enumerate(classes)}
        for site, targets in table.groupby(SITE, sort=False)[TARGET]
    }


def _from_classes(run: Run) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for row in rows_of(run.folder / "classes.csv"):
        site = run.client_names.get(int(row["partition"]), row["partition"])
        found.setdefault(site, {})[row["class"]] = int(row["examples"])
    return found


def compared_cases_table(runs: Sequence[Run]) -> Table | None:
    """Return `held_out_table` of runs that are compared: of the sites left out, if they leave out any."""
    return held_out_table(runs, any(run.summary.left_out for run in runs))


def held_out_table(runs: Sequence[Run], new: bool = False) -> Table | None:
    """Return a row per site with its cases, by class if these are few; None if no run has counted them.

    Where runs differ, as under other seeds, it is from the least to the most. Where sites may have the same
    cases, or not all are in every run, as when each is left out in turn, there is no sum.
    """
    every = [found for run in runs if (found := held_out_by_site(run, new))]
    if not every:
        return None
    sites = list(dict.fromkeys(site for found in every for site in found))
    classes = list(dict.fromkeys(name for found in every for of in found.values() for name in of if name))
    shown = classes if len(classes) <= MOST_CLASSES else []
    events = {run.event for run in runs} if len(classes) == 2 else set()
    header = ["site", CASES, *(_heading(name, events) for name in shown)]
    listed = sites if len(sites) <= MOST_SITES else []
    rows = [[site, *_numbers([found[site] for found in every if site in found], shown)] for site in listed]
    same_sites = all(len(found) == len(sites) for found in every)
    if same_sites and not any(map(have_same_cases, runs)):
        sums = [_sums(found, classes or [""]) for found in every]
        rows.append([ALL_SITES, *_numbers(sums, shown)])
    return Table(header, rows)


def have_same_cases(run: Run) -> bool:
    """Return whether sites have the same held-out cases, as far as the run's folder says."""
    if (given := run.config.get("eval-data")) in ("global", "local"):
        return bool(given == "global")
    table = predictions_of(run.folder, ID)
    if table is not None:
        return bool(table[ID].duplicated().any())
    distinct = sum((run.summary.per_class or OfClasses()).examples)
    return 0 < distinct < sum(sum(of.values()) for of in held_out_by_site(run).values())


def divided_otherwise(runs: Iterable[Run]) -> str:
    """Return a sentence where client 0 of one run is another than that of the next; else nothing.

    So it is under other partitions, and under other seeds, by which all but natural ones and silos draw.
    """
    local = [run for run in runs if run.summary.eval_data == "local" and not run.summary.left_out]
    of_each = ([str(run.config.get(key)) for key in DIVIDES] for run in local)
    found = {
        (name, n, name.startswith("silos") or seed) for name, n, seed in of_each if name[:7] != "natural"
    }
    words = "runs divide the data into other clients, so client 0 of one is not client 0 of another"
    return words if len(found) > 1 else ""


def without_a_value(runs: Iterable[Run]) -> str:
    """Return words that say which clients lack the metric that runs are compared by; nothing if none does."""
    lacking: dict[str, int] = {}
    metric, runs = "", [*runs]
    for run in runs:
        clients = {} if run.summary.left_out else run.summary.clients
        without = [i for i, found in clients.items() if found.get(run.main_metric) is None]
        if 0 < len(without) < len(clients):
            names = [run.client_names.get(int(i), f"client {i}") for i in without]
            lacking |= {name: lacking.get(name, 0) + 1 for name in names}
            metric = spelt(run.main_metric)
    of = listed([*lacking], MOST_NAMED) + " in some runs" * ({*lacking.values()} != {len(runs)})
    return f"no {metric} of {of}, so what is over clients is over the others" if lacking else ""


def cases_of_each_class(runs: Sequence[Run]) -> str:
    """Return a sentence where every site has as many held-out cases of each of some classes; else nothing."""
    every = [found for run in runs if (found := held_out_by_site(run))]
    classes = {frozenset(of) for found in every for of in found.values()}
    numbers = {number for found in every for of in found.values() for number in of.values()}
    sites = {len(found) for found in every}
    if len(classes) != 1 or len(numbers) != 1 or len(sites) != 1 or (count := len(*classes)) < 3:
        return ""
    each = numbers.pop()
    return f"Each of {sites.pop()} sites has {count * each:,} {CASES}, {each:,} of each of {count} classes."


def counts_worth_a_table(runs: Sequence[Run]) -> list[Table]:
    """Return `compared_cases_table`, unless a sentence says the same."""
    table = compared_cases_table(runs)
    return [table] if table and not cases_of_each_class(runs) else []


def _heading(name: str, events: Collection[str]) -> str:
    name = f"class {name}" if name.isdigit() else name
    return f"{name} ({EVENTS})" if name in events else name


def _sums(found: Counts, classes: Sequence[str]) -> dict[str, int]:
    return {name: sum(of_site.get(name, 0) for of_site in found.values()) for name in classes}


def _numbers(counts: Sequence[Mapping[str, int]], classes: Sequence[str]) -> list[str]:
    columns = [[sum(of.values()) for of in counts], *([of.get(name, 0) for of in counts] for name in classes)]
    return [_range(column) for column in columns]


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
