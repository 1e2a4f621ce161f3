"""What a run needs to go on as if it had never stopped."""

from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord
from numpy.typing import NDArray


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
