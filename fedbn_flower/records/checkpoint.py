"""What a run needs to go on as if it had never stopped; its running totals."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from flwr.app import ArrayRecord
from numpy.typing import NDArray

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


@dataclass(frozen=True)
class Checkpoint:
    """The server's side after ``server_round``; ``updates``, ``rule`` and ``draws`` are its rule's state.

    ``counters`` are those of the run folder; ``run`` is the name that clients know the run by; ``signature``
    says which memories fit, and is None where none belong to it (Flower's runtimes keep
    them where we cannot read them). ``versions`` are older models that clients still train, by number.
    ``extensions`` are arrays of the state of extensions, by ``NAME/KEY``. ``counted`` is the model that
    counts, where it is another one than ``arrays``, which travels. ``models`` are those of a strategy that
    keeps several, by name, and ``assigned`` says which a client has, by partition.
    """

    server_round: int
    updates: int
    arrays: ArrayRecord
    rule: dict[str, NDArray]
    counters: dict[str, Any]
    run: str
    signature: str | None
    draws: dict[str, int]
    versions: dict[int, ArrayRecord] = field(default_factory=dict)
    extensions: dict[str, NDArray] = field(default_factory=dict)
    counted: ArrayRecord = field(default_factory=ArrayRecord)
    models: dict[str, ArrayRecord] = field(default_factory=dict)
    assigned: dict[int, str] = field(default_factory=dict)

    @property
    def model(self) -> ArrayRecord:
        """The model that counts."""
        return self.counted or self.arrays

    def model_of(self, client: int) -> ArrayRecord:
        """Return the shared entries of the model that a client has."""
        kept = self.models.get(self.assigned.get(client, ""), ArrayRecord())
        return ArrayRecord({name: kept.get(name, array) for name, array in self.model.items()})
