"""Running totals of a run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .columns import SECONDS, SIMULATED_SECONDS

FLOWER = {"backend": "flower"}
"""Where clients run under Flower's own grids."""


@dataclass
class RunTotals:
    """Running totals of a run.

    They are saved in every checkpoint by the names of the fields, so that a resumed run goes on counting.
    """

    train_seconds: float = 0.0
    evaluate_seconds: float = 0.0
    server_seconds: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0
    simulated_seconds: float = 0.0
    """On the clock of the clients' devices; 0 where they are not named."""
    client_updates: int = 0
    """Answers to train messages that were used."""
    mean_reached: int | None = None
    """The first round in which the clients, over all held-out examples, reached the target."""
    global_reached: int | None = None
    """The same of the global model."""
    mean_costs: dict[str, float] | None = None
    """The run's bytes, sent and received, and its seconds, when `mean_reached` ended. Seconds are simulated
    with named devices, real under Flower's own grids."""
    global_costs: dict[str, float] | None = None
    """The same of `global_reached`."""
    best: float | None = None
    """With patience, the best value so far of the metric that runs are compared by."""
    best_round: int | None = None
    stopped: str | None = None
    """Why the run ended before its last round."""
    normalization: dict[str, list[float]] = field(default_factory=dict)
    """Mean and deviation by channel of the images of sites that have data of their own, as sites get them."""
    runtime: list[dict[str, Any]] = field(default_factory=list)
    """Where clients ran (``backend``, ``workers``), each with the first round that ended there."""

    def note_costs(self, server_round: int) -> None:
        """Note what the run has cost so far, if the target was first reached in this round."""
        costs: dict[str, float] = {"bytes": self.bytes_sent + self.bytes_received}
        if self.simulated_seconds:
            costs[SIMULATED_SECONDS] = round(self.simulated_seconds, 3)
        elif goes_by_real_clock(self.runtime):
            costs[SECONDS] = round(self.train_seconds + self.evaluate_seconds + self.server_seconds, 3)
        if self.mean_reached == server_round:
            self.mean_costs = costs
        if self.global_reached == server_round:
            self.global_costs = costs

    def rounds_to_target(self, target: tuple[str, float] | None) -> dict[str, str | float | None] | None:
        """The rounds in which the target was reached, for the summary; None without a target.

        ``target`` is a metric and its value.
        """
        if not target:
            return None
        metric, value = target
        return {"metric": metric, "target": value, "mean": self.mean_reached, "global": self.global_reached}

    def costs_to_target(self) -> dict[str, dict[str, float] | None]:
        """The bytes and seconds until the target was reached, for the summary."""
        return {"mean": self.mean_costs, "global": self.global_costs}


def goes_by_real_clock(runtime: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether all rounds ran under Flower's own grids, from `RunTotals.runtime`.

    Elsewhere real seconds say how fast the simulation is, not the federation.
    """
    return {place.get("backend") for place in runtime} == {FLOWER["backend"]}
