"""``patience``: early stopping, and the model of the best round."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field as setting

from ..core.key_group import KeyGroup
from ..records.events import RoundResult, RunInfo
from .base import Extension, Stop
from .conflict import Conflict


class PatienceKeys(KeyGroup):
    """Evaluation"""

    after = "evaluate-every"

    patience: int = setting(
        0,
        ge=0,
        description="rounds without a better validation metric before a run ends, with the model of its "
        "best round; 0 for never",
    )


class Patience(Extension):
    """Ends a run without a better round for ``patience`` rounds, and keeps the model of the best one."""

    keys = PatienceKeys

    def __init__(self, run: RunInfo) -> None:
        super().__init__(run)
        self.best: float | None = None
        """The best value so far of the metric that runs are compared by."""
        self.best_round: int | None = None
        self.improved = False

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        if config["patience"] and not config["val-fraction"]:
            yield Conflict(
                "patience", config["patience"], "0 without val-fraction: it goes by a validation set"
            )

    def after_round(self, result: RoundResult) -> Stop | None:
        self.improved = False
        if not (patience := int(self.run.config["patience"])) or not result.splits:
            return None
        value = result.deciding(self.run.compared_by)
        if value is not None and not math.isnan(value) and self._is_better(value):
            self.best, self.best_round, self.improved = value, result.server_round, True
        waited = result.server_round - (self.best_round or 0)
        return Stop("patience") if waited >= patience else None

    def _is_better(self, value: float) -> bool:
        if self.best is None:
            return True
        higher = self.run.compared_by in self.run.higher_is_better
        return value > self.best if higher else value < self.best

    def keeps(self) -> bool | None:
        return None if self.best_round is None else self.improved

    def summary(self) -> Mapping[str, Any]:
        return {"best-round": self.best_round}

    def state(self) -> Mapping[str, Any]:
        return {"best": self.best, "best_round": self.best_round}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.best, self.best_round = state.get("best"), state.get("best_round")
