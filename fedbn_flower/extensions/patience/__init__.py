"""``best`` and ``patience``: which round's model is kept, and early stopping."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field as setting

from fedbn_flower.clients import Problem

from ...core.key_group import KeyGroup
from ...records.events import RoundResult, RunInfo
from ..base import Extension, Stop
from ..conflict import Conflict
from .cross_fitting import CrossFitting

CROSS_FITTED = "cross-fitted"


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
        """Whether halves of the held-out cases choose rounds for each other."""
        return self.best == CROSS_FITTED

    @property
    def keeps_best(self) -> bool:
        """Whether the round whose model is kept is chosen, and so need not be the last one."""
        return self.patience > 0 or self.best != "auto"


class Patience(Extension):
    """Keeps the model of the best round; ends a run without a better one for ``patience`` rounds.

    Parameters
    ----------
    run : RunInfo
        The run.
    problem : Problem, optional
        The run's, for ``best cross-fitted``.
    """

    keys = PatienceKeys

    def __init__(self, run: RunInfo, problem: Problem | None = None) -> None:
        super().__init__(run)
        self.best: float | None = None
        """The best value so far of the metric that runs are compared by."""
        self.best_round: int | None = None
        self.improved = False
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

    def after_round(self, result: RoundResult) -> Stop | None:
        self.improved = False
        if not self.chooses or not result.splits:
            return None
        if self.halves:
            self.halves.look_at(result)
        value = result.deciding(self.run.compared_by)
        if value is not None and not math.isnan(value) and self._is_better(value):
            self.best, self.best_round, self.improved = value, result.server_round, True
        waited = result.server_round - (self.best_round or 0)
        return Stop("patience") if self.patience and waited >= self.patience else None

    def _is_better(self, value: float) -> bool:
        if self.best is None:
            return True
        higher = self.run.compared_by in self.run.higher_is_better
        return value > self.best if higher else value < self.best

    def keeps(self) -> bool | None:
        return None if self.best_round is None else self.improved

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
