"""What leads the tables of a rare event, whose accuracy says little: AUROC, sensitivity, calibration."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Self

from fedbn_flower.clients import Predicted
from fedbn_flower.clients.problems.metrics.scores import Auroc, SensitivityAt, exact_curve

from ..core.files import no_formula
from ..core.ground.columns import GLOBAL, POOLED
from ..core.ground.wire import LOSS
from ..core.process_cache import process_cache
from ..core.stored import DAMAGES, rows_of
from ..data.events import RARE
from ..records.cases import SCORE, SITE, TARGET, binary_cases
from ..records.summary import OfClient, Summary
from .held_out import have_same_cases
from .run_reader import PARTITIONS, Run

if TYPE_CHECKING:
    from pandas import DataFrame

SPECIFICITY = "0.9"
Data = tuple[object, ...]
"""What runs have in common that learn the same from the same data."""
LEADING = AUROC, SENSITIVITY, CALIBRATION = "auroc", f"sensitivity-at:{SPECIFICITY}", "expected-over-observed"


def rare_cases(run: Run) -> "DataFrame | None":
    """Return the held-out cases of a rare event; None of other runs, and where cases are not kept."""
    cases = run.binary_cases
    return None if cases is None or not is_rare(cases) or have_same_cases(run) else cases


def is_rare(cases: "DataFrame") -> bool:
    """Whether cases have an event, and few."""
    return 0 < share_of_events(cases) < RARE


def share_of_events(cases: "DataFrame") -> float:
    """Return the share of cases with the event."""
    return float((cases[TARGET] == 1).mean())


def led_by_rare_event(run: Run) -> Run:
    """Return the run with the `LEADING` metrics of all cases and of each client, if its event is rare.

    Where it would be compared by accuracy, it is by AUROC, unless a site is left out.
    """
    cases = rare_cases(run)
    return run if cases is None else _led(run, cases)


def _led(run: Run, cases: "DataFrame") -> Run:
    summary = run.summary
    of_all = summary.pooled or summary.mean or {}
    clients = _of_each(summary.clients, cases)
    update: dict[str, object] = {"pooled": {**figures(cases), **of_all}, "clients": clients}
    if (new := summary.new_clients) and (of_new := binary_cases(run.folder, new=True)) is not None:
        update["new_clients"] = new.model_copy(update={"clients": _of_each(new.clients, of_new)})
    if run.main_metric == "accuracy" and not summary.left_out:
        update |= {"compared_by": AUROC, "higher_is_better": [*summary.higher_is_better, AUROC]}
    return replace(run, summary=summary.model_copy(update=update))


def _of_each(clients: Mapping[str, OfClient], cases: "DataFrame") -> dict[str, OfClient]:
    """Return the metrics of clients with the `LEADING` ones of each one's cases."""
    return {
        number: {**figures(cases[cases[SITE] == client.get("name", number)]), **client}
        for number, client in clients.items()
    }


def data_of(run: Run) -> Data:
    """Return the data that a run learns from, and what of them."""
    return tuple(run.config.get(key) for key in ("dataset", "label-column"))


def may_be_rare(run: Run) -> bool:
    """Whether one of two classes is rare, as far as their counts say; without any, one may be."""
    counts = run.summary.per_class.examples if run.summary.per_class else ()
    return not counts or (len(counts) == 2 and min(counts) < RARE * sum(counts))


def leading_by_round(metric: str, is_rare: bool, columns: Collection[str]) -> str:
    """Return the column that leads what is shown by round.

    It is that of the metric by which the run is compared; but in place of the accuracy of a rare event AUROC
    of all cases, or the loss where no round has it.
    """
    if not is_rare or metric != "accuracy":
        return next((name for name in (metric, POOLED + metric, GLOBAL + metric) if name in columns), metric)
    found = (prefix + name for name in (AUROC, LOSS) for prefix in (POOLED, "", GLOBAL))
    return next((name for name in found if name in columns), metric)


def is_rare_in_training(run: Run) -> bool:
    """Whether an event is rare among the training examples: what is known before a run has ended.

    A damaged table of these says nothing.
    """
    path, events = run.folder / PARTITIONS, run.config.get("events") or []
    if len(events) == 1 and path.exists():
        with suppress(*DAMAGES):
            counts = _by_class(path, path.stat().st_mtime_ns)
            return 0 < counts[str(no_formula(str(events[0])))] < RARE * counts.total()
    return False


@process_cache(maxsize=64)
def _by_class(path: Path, changed: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for row in rows_of(path):
        counts[row["class"]] += int(row["examples"])
    return counts


@dataclass(frozen=True)
class Candidate:
    """A run that is compared with others: they are led by a rare event if all of the same data can be.

    Parameters
    ----------
    run : Run
        The run as it was read.
    share : float
        The share of events among its held-out cases; NaN where it keeps none, or has other than two classes.
    lacks : str
        Why it has no AUROC of all cases; empty if it has.
    """

    run: Run
    share: float
    lacks: str

    @classmethod
    def of(cls, run: Run) -> Self:
        """Return what a run's cases say."""
        cases = binary_cases(run.folder)
        if cases is None:
            return cls(run, nan, "cases are not kept")
        same = "sites have the same cases" if have_same_cases(run) else ""
        return cls(run, share_of_events(cases), "a site is left out" if run.summary.left_out else same)

    @property
    def data(self) -> Data:
        return data_of(self.run)

    @property
    def is_rare(self) -> bool:
        """Whether its cases have an event, and few."""
        return 0 < self.share < RARE

    @property
    def stays_with_accuracy(self) -> bool:
        """Whether it cannot be compared by AUROC, of its cases or as its own metric."""
        return bool(self.lacks) and self.run.main_metric == "accuracy"

    @cached_property
    def led(self) -> Run:
        """The run led by its event, however rare this is; itself without cases."""
        cases = None if self.lacks else binary_cases(self.run.folder)
        return self.run if cases is None else _led(self.run, cases)


def rare_data(runs: Iterable[tuple[Run, Callable[[], Candidate]]]) -> set[Data]:
    """Return the data of which the event is rare, from runs that may go on, and what gives their cases.

    Those that have ended decide, by the cases of any; without cases, the training examples.
    """
    found, by_data = set(), defaultdict(list)
    for run, candidate in runs:
        by_data[data_of(run)].append((run, candidate))
    for data, of_data in by_data.items():
        ended = [(run, candidate) for run, candidate in of_data if run.has_ended]
        unsure = [candidate for run, candidate in ended if may_be_rare(run)]
        if unsure and any(candidate().is_rare for _, candidate in ended):
            found.add(data)
        elif all(isnan(candidate().share) for candidate in unsure) and len(unsure) == len(ended):
            found |= {data for run, _ in of_data if is_rare_in_training(run)}
    return found


def led_together(candidates: Sequence[Candidate]) -> list[Run]:
    """Return runs that are compared; of those of the same data all are led by a rare event, or none is."""
    data = {found[0].data for found in _rare(candidates) if not any(one.stays_with_accuracy for one in found)}
    return [one.led if one.data in data else one.run for one in candidates]


def why_by_accuracy(runs: Iterable[Run]) -> str:
    """Return a sentence if runs of a rare event are compared by accuracy, as not all have an AUROC."""
    for found in _rare([Candidate.of(run) for run in runs if run.main_metric == "accuracy"]):
        shares = sorted(one.share for one in found if one.share > 0)
        low, high = (f"{100 * share:.1f}" for share in (shares[0], shares[-1]))
        lacking = Counter(one.lacks for one in found if one.lacks)
        if lacking:
            of_each = (f"{lacks} in {count} of {len(found)} runs" for lacks, count in lacking.items())
            return (
                f"The event is rare ({low if low == high else f'{low} to {high}'} % of held-out cases): "
                f"accuracy says little of it. {'No' if lacking.total() == len(found) else 'Not every'} run "
                "has an AUROC of all cases "
                f"({'; '.join(of_each)}); with --metrics auroc they are compared by AUROC."
            )
    return ""


def _rare(candidates: Iterable[Candidate]) -> list[list[Candidate]]:
    """Return the runs that have ended, by their data, if the event is rare in one of them."""
    by_data: dict[Data, list[Candidate]] = defaultdict(list)
    for one in candidates:
        if one.run.summary.rounds:
            by_data[one.data].append(one)
    return [found for found in by_data.values() if any(one.is_rare for one in found)]


def is_led(summary: Summary) -> bool:
    """Whether a summary is one of `led_by_rare_event`."""
    return CALIBRATION in (summary.pooled or ())


def figures(cases: "DataFrame") -> dict[str, float | None]:
    """Return the `LEADING` metrics of cases of an event; None for one that is undefined."""
    truth, scores = (cases[TARGET] == 1).to_numpy(), cases[SCORE].to_numpy()
    events = int(truth.sum())
    if not 0 < events < len(truth):
        return dict.fromkeys(LEADING)
    predicted, curve = Predicted("classes", 2), exact_curve(truth, scores)
    sensitivity = SensitivityAt(predicted, SPECIFICITY).of_curve(curve)
    values = (Auroc(predicted).of_curve(curve), sensitivity, scores.sum() / events)
    return dict(zip(LEADING, map(float, values), strict=True))


def main_first(summary: Summary, main: str, metrics: Iterable[str]) -> list[str]:
    """Return metrics in their order, but the main one first, and those of a rare event, its accuracy last."""
    rare = (*LEADING, "accuracy") if is_led(summary) else ()
    leading = dict.fromkeys([*(rare if main == "accuracy" else ()), main, *rare])
    names = list(metrics)
    return [name for name in dict.fromkeys([*leading, *names]) if name in names]
