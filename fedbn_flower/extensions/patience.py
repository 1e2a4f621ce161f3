"""``best`` and ``patience``: which round's model is kept, and early stopping.

With ``best cross-fitted``, each of two halves of the held-out cases selects the round at which the other half
is reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from flwr.app import MetricRecord
from numpy.typing import NDArray

from fedbn_flower.clients import Problem
from fedbn_flower.strategies import PhaseReport

from ..core.errors import Conflict
from ..core.ground.columns import CLIENT_MEAN, HALVES, HeldOut
from ..core.ground.settings import KeyGroup, setting
from ..records.events import RoundResult, RunInfo
from ..records.metrics import held_out_means, metric_values, number, of_all_reports
from .base import ServerHook

EXAMPLES = "eval-examples"
REPORTS = "halves"
"""The key of their part of a state; an array's key is ``HALF/PARTITION/STATE``."""
OTHER = dict(zip(HALVES, reversed(HALVES), strict=True))


class CrossFitting:
    """Selects a round by each half, and keeps the clients' metrics of the other half in that round.

    So each case is reported exactly once, at a round that it had no part in selecting.

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
        """By selecting half and partition, the metrics of the other half in that round."""
        self.states: dict[str, dict[str, dict[str, NDArray]]] = {}
        """The same for the metric states, by name."""

    def look_at(self, result: RoundResult) -> None:
        """Select a round for each half on which it is the best so far."""
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
        """Keep the clients' metrics of the other half."""
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
        """Return the metrics of all cases, each at the round that the other half selected; None without one.

        ``rounds`` has the round that each half selected.
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
        """Return the metrics over both halves of these clients' cases together."""
        kept = [found[p] for found in self.metrics.values() for p in partitions if p in found]
        states = [one for found in self.states.values() for p in partitions if (one := found.get(p))]
        found = of_all_reports([MetricRecord(dict(one)) for one in kept], states, self.problem)
        return {**found, EXAMPLES: sum(one[EXAMPLES] for one in kept)}

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps; see `ServerHook.state`."""
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


CROSS_FITTED = HeldOut.HALVES.column


class PatienceKeys(KeyGroup):
    """Evaluation"""

    after = "evaluate-every"

    patience: int = setting(
        0,
        ge=0,
        description="rounds without a better validation metric before a run ends, with the model of its "
        "best round; 0 for never",
    )
    best: Literal["auto", "validation", "cross-fitted"] = setting(
        "auto",
        description="which round's model is kept: auto is the last one or, with patience, the best one on "
        "the validation share; validation is the latter without an early end; cross-fitted is the best one "
        "on the held-out cases, of which each half chooses the round in which the other half is reported",
    )

    @property
    def cross_fits(self) -> bool:
        """Whether the two halves of the held-out cases select rounds for each other."""
        return self.best == CROSS_FITTED

    @property
    def keeps_best(self) -> bool:
        """Whether the model of a selected round is kept, which need not be the last one."""
        return self.patience > 0 or self.best != "auto"


class Patience(ServerHook):
    """Keeps the model of the best round; ends a run that has not improved for ``patience`` rounds.

    Parameters
    ----------
    run : RunInfo
        The run.
    problem : Problem, optional
        The run's, for ``best cross-fitted``.
    """

    place = 90
    beside = True

    def __init__(self, run: RunInfo, problem: Problem | None = None) -> None:
        super().__init__(run)
        self.best: float | None = None
        """The best value so far of the metric that runs are compared by."""
        self.best_round: int | None = None
        self.patience = int(run.config["patience"])
        best = run.config.get("best", "auto")
        self.chooses = bool(self.patience) or best != "auto"
        self.halves = CrossFitting(run, problem) if best == CROSS_FITTED and problem else None

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        if config["best"] == CROSS_FITTED:
            yield from _conflicts_of_halves(config)
        elif not config["val-fraction"]:
            if config["patience"]:
                yield Conflict(
                    "patience", config["patience"], "0 without val-fraction: it goes by a validation set"
                )
            if config["best"] != "auto":
                yield Conflict("best", config["best"], "'auto' or 'cross-fitted' without val-fraction")

    def after_round(self, result: RoundResult) -> RoundResult:
        improved, stopped = False, result.stopped
        if self.chooses and result.splits:
            if self.halves:
                self.halves.look_at(result)
            value = result.deciding(self.run.compared_by)
            if value is not None and not math.isnan(value) and self._is_better(value):
                self.best, self.best_round, improved = value, result.server_round, True
            waited = result.server_round - (self.best_round or 0)
            if self.patience and waited >= self.patience:
                stopped = stopped or "patience"
        kept = improved or self.best_round is None
        return replace(result, improved=improved, kept=kept, stopped=stopped)

    def _is_better(self, value: float) -> bool:
        if self.best is None:
            return True
        higher = self.run.compared_by in self.run.higher_is_better
        return value > self.best if higher else value < self.best

    def summary(self) -> Mapping[str, Any]:
        found = self.halves.summary() if self.halves else None
        return {"best-round": self.best_round, **({CROSS_FITTED: found} if found else {})}

    def state(self) -> Mapping[str, Any]:
        return {
            **{"best": self.best, "best_round": self.best_round},
            **(self.halves.state() if self.halves else {}),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.best, self.best_round = state.get("best"), state.get("best_round")
        if self.halves:
            self.halves.restore(state)


def _conflicts_of_halves(config: Mapping[str, Any]) -> Iterator[Conflict]:
    best = config["best"]
    with_halves = f"with best {best!r}"
    if config["val-fraction"]:
        wanted = f"0 {with_halves}, which needs no validation share"
        yield Conflict("val-fraction", config["val-fraction"], wanted)
    if config["patience"]:
        yield Conflict("patience", config["patience"], f"0 {with_halves}: it goes by a validation set")
    if config["stop-at-target"]:
        yield Conflict("stop-at-target", True, f"false {with_halves}: the held-out cases would end the run")
    if config["dp"] != "none":
        wanted = f"'auto' with dp {config['dp']!r}, since clients' metrics would decide what is published"
        yield Conflict("best", best, wanted)
    if config["eval-model"] == "aggregated" and not config["fraction-evaluate"]:
        yield Conflict("best", best, "'auto' or 'validation' with fraction-evaluate 0: no client evaluates")
