"""``target`` and ``stop-at-target``: when a metric first reached its target, and what that took."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from ..core.errors import Conflict
from ..core.ground.columns import GLOBAL
from ..core.ground.settings import KeyGroup, form, setting
from ..records.events import RoundResult, RunInfo
from .base import ServerHook, Stop

NO_TARGET = "none"
FORM = "METRIC=VALUE, or none"
STATE = ("mean_reached", "global_reached", "mean_costs", "global_costs")


def target_of(text: str) -> tuple[str, float] | None:
    """Return the metric and the value of ``METRIC=VALUE``; None for ``none``.

    Raises
    ------
    ValueError
        For any other text.
    """
    if text == NO_TARGET:
        return None
    metric, equals, number = text.rpartition("=")
    if not (metric and equals and math.isfinite(value := float(number))):
        raise ValueError(text)
    return metric, value


class TargetKeys(KeyGroup):
    """Evaluation"""

    after = "thresholds"

    target: Annotated[str, FORM, form(target_of)] = setting(
        NO_TARGET, description="the summary gives the first round that reached this value, such as auroc=0.9"
    )
    decide_by: Literal["auto", "pooled", "mean", "median", "server"] = setting(
        "auto",
        description="whose metric decides for patience, stop-at-target and a search: that of all held-out "
        "examples, the clients' mean or median, or the server's; auto is the server's where it "
        "evaluates what clients do, otherwise pooled",
    )
    stop_at_target: bool = setting(False, description="end the run in the round that reaches the target")

    @property
    def target_value(self) -> tuple[str, float] | None:
        """The metric of the target and its value; None without a target."""
        return target_of(self.target)


class Target(ServerHook):
    """Records the first round in which clients, and the global model, reached the target."""

    place = 70  # before privacy: a target reached in the round that exhausts the budget counts
    beside = True

    def __init__(self, run: RunInfo) -> None:
        super().__init__(run)
        self.target = target_of(str(run.config["target"]))
        self.mean_reached: int | None = None
        """By the clients, over all their held-out examples."""
        self.global_reached: int | None = None
        self.mean_costs: Mapping[str, float] | None = None
        """The run's costs up to that round; see `RoundResult.costs`."""
        self.global_costs: Mapping[str, float] | None = None

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        if config["stop-at-target"] and config["target"] == NO_TARGET:
            yield Conflict("stop-at-target", True, "false without target")

    def after_round(self, result: RoundResult) -> Stop | None:
        if not self.target or not result.splits:
            return None
        metric, number = self.target, result.server_round
        if self.mean_reached is None and self._is_reached(result.deciding(metric[0], "pooled")):
            self.mean_reached, self.mean_costs = number, result.costs
        if self.global_reached is None and self._is_reached(result.metrics.get(GLOBAL + metric[0])):
            self.global_reached, self.global_costs = number, result.costs
        stops = self.run.config["stop-at-target"]
        return Stop("target") if stops and self._is_reached(result.deciding(metric[0])) else None

    def _is_reached(self, value: float | None) -> bool:
        assert self.target
        metric, wanted = self.target
        value = math.nan if value is None else value
        return value >= wanted if metric in self.run.higher_is_better else value <= wanted

    def summary(self) -> Mapping[str, Any]:
        if not self.target:
            return {"rounds-to-target": None}
        metric, value = self.target
        reached = {"mean": self.mean_reached, "global": self.global_reached}
        return {
            "rounds-to-target": {"metric": metric, "target": value, **reached},
            "costs-to-target": {"mean": self.mean_costs, "global": self.global_costs},
        }

    def state(self) -> Mapping[str, Any]:
        return {name: getattr(self, name) for name in STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        for name in STATE:
            setattr(self, name, state.get(name))
