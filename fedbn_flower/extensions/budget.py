"""The end of a run whose privacy budget is spent."""

import logging

from ..records.events import RoundResult
from .base import Extension, Stop

LOGGER = logging.getLogger("flwr.fedbn")


class Budget(Extension):
    """Ends a run in the round with which its privacy budget is spent."""

    def after_round(self, result: RoundResult) -> Stop | None:
        if not result.spent:
            return None
        if result.server_round < self.run.rounds:
            LOGGER.warning("privacy: budget spent at round %d of %d", result.server_round, self.run.rounds)
        return Stop("budget")
