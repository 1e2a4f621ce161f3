"""`Mechanism`: central differential privacy, as far as a rule knows it: whom to ask, a bound, and a mean."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .vectors import Vector


class Mechanism(Protocol):
    """Decides who trains, how far one client can move the sum of a round, and what of it becomes known.

    A rule that has one (``rule.mechanism = ...``) gives every answer the weight 1 and scales its difference
    ``x_i - x`` to the L2 norm `bound` at most. A missing answer counts 0. The step is always taken, also
    without any answer, from what `publish` makes of the sum. Entries that are not stepped stay as they are.
    """

    @property
    def bound(self) -> float:
        """C, the largest L2 norm of a client's difference in the next round."""

    @property
    def step(self) -> float:
        """The grid that every clipped difference is rounded to in the next round; 0 for none.

        With one, `publish` is given their sum over it: whole numbers below 2^53, and so exact in float64.
        """

    @property
    def num_answers(self) -> float:
        """The expected number of answers: a public constant, by which the sum is divided."""

    def sample(self, server_round: int, partitions: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return which of the nodes, given by partition id and in this order, train in this round."""

    def publish(self, server_round: int, total: Vector, within: float) -> Vector:
        """Return the mean that the rule steps from.

        Parameters
        ----------
        server_round : int
            Number of the round.
        total : Vector
            The sum of the clipped differences; it may be changed.
        within : float
            ``sum_i (b_i - 1/2)``, where b_i is 1 if a difference was no longer than `bound`, and else 0.
        """
