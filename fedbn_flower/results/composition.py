"""What several private runs on the same data come to together."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core.text import are
from ..privacy.terms import GUARANTEE
from .run_reader import Run

Private = tuple[str, Mapping[str, Any]]
"""The data of a run, by which runs are told apart, and what its summary says of privacy; empty without."""


def privacy_of_runs(runs: Sequence[Run]) -> list[str]:
    """Return the sentences of `added_up` for runs that are read from their folders."""
    return added_up((str(run.config.get("data") or run.dataset), run.summary.privacy or {}) for run in runs)


def added_up(runs: Iterable[Private]) -> list[str]:
    """Return a sentence for all private runs on the same data that protect the same, where there are
    several runs.

    By basic composition (Dwork et al. 2006) epsilons and deltas add up, whatever the mechanisms. Runs
    that are
    not private have no bound.
    """
    by_data: dict[str, list[Mapping[str, Any]]] = {}
    for data, privacy in runs:
        by_data.setdefault(data, []).append(privacy)
    lines = []
    for found in by_data.values():
        private = [one for one in found if one]
        for notion, adjacency in dict.fromkeys((one["notion"], one["adjacency"]) for one in private):
            alike = [one for one in private if (one["notion"], one["adjacency"]) == (notion, adjacency)]
            if len(found) - len(private) + len(alike) > 1:
                lines.append(_sentence(notion, adjacency, alike, len(found) - len(private)))
    return lines


def _sentence(notion: str, adjacency: str, runs: Sequence[Mapping[str, Any]], plain: int) -> str:
    epsilon, delta = (sum(float(one[name]) for one in runs) for name in ("epsilon", "delta"))
    others = sorted({str(one["claim"]) for one in runs} - {GUARANTEE})
    claim = f" ({' and '.join(others)}, not guaranteed)" if others else ""
    without = ""
    if plain:
        without = (
            f" {plain} further {'run' if plain == 1 else 'runs'} on the same data had no "
            f"privacy, and no bound."
        )
    return (
        f"Privacy adds up: {len(runs)} {'runs' if len(runs) > 1 else 'run'} on the same data "
        f"({notion}; {adjacency}) "
        f"{are(len(runs))} epsilon {epsilon:.4g} at delta {delta:.3g} "
        f"together{claim}.{without}"
    )
