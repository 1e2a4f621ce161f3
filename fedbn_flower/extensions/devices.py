"""``devices``: the simulated clock of a run."""

from collections.abc import Callable, Mapping, Sequence

from flwr.app import ArrayRecord

from ..records.columns import SIMULATED_SECONDS
from ..records.events import RunInfo
from .base import Extension, Moment


class Devices(Extension):
    """Counts the seconds that the rounds take on the clients' devices.

    Parameters
    ----------
    run : RunInfo
        The run.
    ends : callable, optional
        Returns when a round ends, from its number and when it began, in seconds since the run began. None
        without devices.
    """

    def __init__(self, run: RunInfo, ends: Callable[[int, float], float] | None) -> None:
        super().__init__(run)
        self.ends = ends
        self.now: dict[str, float] = {}

    def published(
        self, model: ArrayRecord, before: ArrayRecord, sent: ArrayRecord, moment: Moment
    ) -> ArrayRecord:
        if self.ends:
            moment.totals.simulated_seconds = self.ends(moment.number, moment.totals.simulated_seconds)
            self.now = {SIMULATED_SECONDS: round(moment.totals.simulated_seconds, 3)}
        return model

    def header(self) -> Sequence[str]:
        return [SIMULATED_SECONDS] if self.ends else []

    def columns(self) -> Mapping[str, float]:
        return self.now
