"""The state of a rule between updates of the model."""

from dataclasses import dataclass, field, replace

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp.exception import AggregationError
from numpy.typing import NDArray

from .vectors import Vector

BEGAN = "began"
"""The vector of how many updates there were before a parameter was stepped."""

CLASS_COUNTS = "class-counts"
"""The vector of the examples of each class at each client, (clients, classes), by partition."""


@dataclass
class RuleState:
    """Everything needed to resume a rule; it can be saved and restored between rounds.

    Parameters
    ----------
    updates : int
        Number of updates of the model so far.
    vectors : dict[str, Vector]
        The rule's vectors (moments, momentum) by name, each over all stepped parameters; includes ``began``
        once some parameters started later than others, see `count`.
    draws : dict[str, int]
        Number of the last sample of nodes, by phase.
    new : NDArray, optional
        bool, a mask over the stepped parameters: those that earlier rounds did not step.
    models : dict[str, ArrayRecord]
        The models of a rule that keeps several, by name; missing entries are those of the main model.
    assigned : dict[int, str]
        The name of the model that a client has, by partition.
    """

    updates: int = 0
    vectors: dict[str, Vector] = field(default_factory=dict)
    draws: dict[str, int] = field(default_factory=dict)
    new: NDArray[np.bool_] | None = None
    models: dict[str, ArrayRecord] = field(default_factory=dict)
    assigned: dict[int, str] = field(default_factory=dict)

    def snapshot(self) -> "RuleState":
        """Return a shallow copy: arrays are shared, and later updates change some in place."""
        return replace(
            self,
            vectors=dict(self.vectors),
            draws=dict(self.draws),
            models=dict(self.models),
            assigned=dict(self.assigned),
        )

    def next_draw(self, phase: str, server_round: int) -> int:
        """Return the number of a phase's next sample: the round, or the last number + 1 if that is greater.

        So a second call of ``start``, which begins with round 1 again, does not repeat samples.
        """
        self.draws[phase] = max(server_round, self.draws.get(phase, 0) + 1)
        return self.draws[phase]

    def vector(self, name: str, *, like: Vector, fill: float = 0.0) -> Vector:
        """Return the state vector of a name, to be updated in place.

        On first use its entries are ``fill``, and so are those of parameters that are stepped only later.

        Raises
        ------
        AggregationError
            When its length differs from ``like``: it was made for another model.
        """
        if name not in self.vectors:
            self.vectors[name] = np.full_like(like, fill)
        vector = self.vectors[name]
        if self.new is not None and vector.size == like.size - np.count_nonzero(self.new):
            self.vectors[name] = vector = self._grown(vector, np.full_like(like, fill))
            began = self.vectors.get(BEGAN, np.zeros(np.count_nonzero(~self.new), np.int32))
            if began.size < like.size:
                self.vectors[BEGAN] = self._grown(began, np.full(like.size, self.updates, np.int32))
        if vector.shape != like.shape:
            raise AggregationError(
                f"the rule's state {name!r} is for {vector.size} parameters, but the model has {like.size}"
            )
        return vector

    def count(self, update: int) -> int | NDArray[np.integer]:
        """Return each parameter's own number of updates, as torch counts steps.

        It is ``update`` itself, unless some parameters are stepped only from a later round on: then it is an
        array over all of them. Bias correction ``m / (1 - b^t)`` needs it, as the moments of a new parameter
        begin at 0. Call `vector` for the rule's vectors first.
        """
        began = self.vectors.get(BEGAN)
        return update if began is None else update - began.astype(np.int32)

    def _grown(self, vector: Vector, filled: Vector) -> Vector:
        """Return a vector extended to all parameters, with the entries of ``filled`` for new ones."""
        filled[~self.new] = vector  # type: ignore[operator]
        return filled
