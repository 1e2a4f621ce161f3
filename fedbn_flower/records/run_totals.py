"""Running totals of a run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ..core.ground.columns import SECONDS, SIMULATED_SECONDS

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
    stopped: str | None = None
    """Why no further round is to follow, such as patience; it may be the last one of `rounds`."""
    normalization: dict[str, list[float]] = field(default_factory=dict)
    """Mean and deviation by channel of the images of sites that have data of their own, as sites get them."""
    runtime: list[dict[str, Any]] = field(default_factory=list)
    """Where clients ran (``backend``, ``workers``), each with the first round that ended there."""

    @classmethod
    def of(cls, account: Mapping[str, Any]) -> "RunTotals":
        """Read a checkpoint's; up to version 0.2 it had the state of extensions beside them."""
        names = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in account.items() if name in names})

    def costs(self) -> dict[str, float]:
        """Return the run's bytes so far, sent and received, and its seconds.

        Seconds are simulated with named devices, and real under Flower's own grids; elsewhere there are none.
        """
        costs: dict[str, float] = {"bytes": self.bytes_sent + self.bytes_received}
        if self.simulated_seconds:
            costs[SIMULATED_SECONDS] = round(self.simulated_seconds, 3)
        elif goes_by_real_clock(self.runtime):
            costs[SECONDS] = round(self.train_seconds + self.evaluate_seconds + self.server_seconds, 3)
        return costs


def goes_by_real_clock(runtime: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether all rounds ran under Flower's own grids, from `RunTotals.runtime`.

    Elsewhere real seconds say how fast the simulation is, not the federation.
    """
    return {place.get("backend") for place in runtime} == {FLOWER["backend"]}
