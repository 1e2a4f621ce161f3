"""Two halves of the held-out cases: each chooses the round in which the other is reported."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import MetricRecord
from numpy.typing import NDArray

from fedbn_flower.clients import Problem
from fedbn_flower.strategies import PhaseReport

from ...core.ground.columns import CLIENT_MEAN, HALVES
from ...records.events import RoundResult, RunInfo
from ...records.metrics import held_out_means, metric_values, number, of_all_reports

EXAMPLES = "eval-examples"
REPORTS = "halves"
"""The key of what is kept of them in a state; that of an array is ``HALF/PARTITION/STATE``."""
OTHER = dict(zip(HALVES, reversed(HALVES), strict=True))


class CrossFitting:
    """Chooses a round by each half, and keeps what clients found of the other half in it.

    So a case is reported in a round that it had no part in choosing. All cases are, each once.

    Parameters
    ----------
    run : RunInfo
        The run.
    problem : Problem
        The run's, with its metrics.
    """

    def __init__(self, run: RunInfo, problem: Problem) -> None:
        self.run, self.problem = run, problem
        self.best: dict[str, float] = {}
        """By half, the best value so far of the metric that runs are compared by."""
        self.rounds: dict[str, int] = {}
        """By half, the round of that value."""
        self.metrics: dict[str, dict[str, dict[str, float]]] = {}
        """By half that chose and partition, the metrics of the other half in that round."""
        self.states: dict[str, dict[str, dict[str, NDArray]]] = {}
        """The same of the states, by name."""

    def look_at(self, result: RoundResult) -> None:
        """Take a round where it is the best so far on a half."""
        for half in HALVES:
            value = result.deciding(f"{half}-{self.run.compared_by}")
            if value is not None and not math.isnan(value) and self._is_better(half, value):
                self.best[half], self.rounds[half] = value, result.server_round
                self._keep(half, result.evaluate)

    def _is_better(self, half: str, value: float) -> bool:
        if half not in self.best:
            return True
        higher = self.run.compared_by in self.run.higher_is_better
        return value > self.best[half] if higher else value < self.best[half]

    def _keep(self, half: str, report: PhaseReport) -> None:
        """Keep what clients found of the other half."""
        prefix = f"{OTHER[half]}-"
        names = {prefix + name: name for name in self.problem.metrics}
        names[f"{prefix}examples"] = EXAMPLES
        self.metrics[half] = {
            str(partition): {
                new: value for old, new in names.items() if (value := number(found, old)) is not None
            }
            for partition, found in report.metrics.items()
            if f"{prefix}examples" in found
        }
        self.states[half] = {
            str(partition): {
                name.removeprefix(prefix): np.asarray(state)
                for name, state in states.items()
                if name.startswith(prefix)
            }
            for partition, states in report.states.items()
        }

    def summary(self) -> dict[str, Any] | None:
        """Return the metrics of all cases, each of the round that the other half chose; None before a round.

        ``rounds`` has the round that each half chose.
        """
        if len(self.rounds) < len(HALVES):
            return None
        partitions = sorted({p for found in self.metrics.values() for p in found}, key=int)
        each = {p: self._together([p]) for p in partitions}
        reports = [MetricRecord({k: v for k, v in found.items() if v is not None}) for found in each.values()]
        means = held_out_means(reports, True, self.problem)
        names = self.run.client_names
        whole = self._together(partitions) if self.problem.chosen else None
        return {
            "by": self.run.compared_by,
            "rounds": self.rounds,
            "pooled": metric_values(self.problem, whole, "") if whole else None,
            "mean": metric_values(self.problem, means, ""),
            "client-mean": metric_values(self.problem, means, CLIENT_MEAN),
            "clients": {
                p: {
                    **({"name": names[int(p)]} if names else {}),
                    **metric_values(self.problem, found, ""),
                }
                for p, found in each.items()
            },
        }

    def _together(self, partitions: list[str]) -> dict[str, Any]:
        """Return the metrics of both halves of some clients' cases in one place."""
        kept = [found[p] for found in self.metrics.values() for p in partitions if p in found]
        states = [one for found in self.states.values() for p in partitions if (one := found.get(p))]
        found = of_all_reports([MetricRecord(dict(one)) for one in kept], states, self.problem)
        return {**found, EXAMPLES: sum(one[EXAMPLES] for one in kept)}

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps; see `Extension.state`."""
        arrays = {
            f"{half}/{partition}/{name}": state
            for half, found in self.states.items()
            for partition, states in found.items()
            for name, state in states.items()
        }
        return {REPORTS: {"best": self.best, "rounds": self.rounds, "metrics": self.metrics}, **arrays}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""
        found = state.get(REPORTS, {})
        self.best, self.rounds = dict(found.get("best", {})), dict(found.get("rounds", {}))
        self.metrics = dict(found.get("metrics", {}))
        self.states = {}
        for key, array in state.items():
            if key.startswith(HALVES):
                half, partition, name = key.split("/", 2)
                self.states.setdefault(half, {}).setdefault(partition, {})[name] = array
