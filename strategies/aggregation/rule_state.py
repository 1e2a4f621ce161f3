"""What a rule remembers from one update to the next."""

from dataclasses import dataclass, field

import numpy as np
from flwr.serverapp.exception import AggregationError

from .vectors import Vector


@dataclass
class RuleState:
    """Everything there is to resume a rule: it may be saved, and put back, between two rounds.

    ``updates`` counts how often the model was updated; ``vectors`` are the rule's own (moments, momentum) by
    name, each over all stepped parameters; ``draws`` is the number of the last sample of nodes, by phase.
    """

    updates: int = 0
    vectors: dict[str, Vector] = field(default_factory=dict)
    draws: dict[str, int] = field(default_factory=dict)

    def next_draw(self, phase: str, server_round: int) -> int:
        """The number of a phase's next sample: the round's, unless there was a sample of that number.

        So ``start`` called again, whose rounds begin with 1, goes on where the last one ended.
        """
        self.draws[phase] = max(server_round, self.draws.get(phase, 0) + 1)
        return self.draws[phase]

    def vector(self, name: str, *, like: Vector, fill: float = 0.0) -> Vector:
        """The state vector of that name, to be updated in place; made on first use, each entry ``fill``.

        Raises
        ------
        AggregationError
            When it has another length than ``like``: the model is not the one it was made for.
        """
        if name not in self.vectors:
            self.vectors[name] = np.full_like(like, fill)
        vector = self.vectors[name]
        if vector.shape != like.shape:
            raise AggregationError(
                f"the rule's {name!r} is of a model with {vector.size} parameters, this one has {like.size}"
            )
        return vector
