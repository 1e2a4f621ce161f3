"""``devices``: how fast clients compute and communicate, and so how long a round takes."""

from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Annotated, Any

from flwr.app import ArrayRecord

from ..core.errors import Conflict, not_allowed
from ..core.files import absolute
from ..core.ground.columns import SIMULATED_SECONDS
from ..core.ground.settings import KeyGroup, setting
from ..core.input_spec import InputSpec
from ..records.events import RunInfo
from .base import Moment, ServerHook
from .holdout import num_training
from .selection import sampled

NONE = "none"
NAMED = (NONE, "uniform", "phones")
HEADER = ("partition-id", "seconds-per-example", "download", "upload")
DEVICES = (
    f"none, uniform, lognormal:SIGMA with SIGMA >= 0, phones, or a CSV file with header {','.join(HEADER)}"
)


class DevicesKeys(KeyGroup):
    """Devices and simulated time"""

    of_references = False
    after = "availability"

    devices: Annotated[str, DEVICES] = setting(
        NONE,
        description="how fast clients compute and communicate, for the simulated seconds of a run: all "
        "alike, drawn for each client, or as a file says",
    )
    round_deadline: float = setting(
        0.0, ge=0, description="simulated seconds after which answers no longer count; 0 for no deadline"
    )
    over_select: float = setting(
        1.0,
        ge=1,
        description="ask this many times as many clients to train as answers count; the first ones count",
    )


def sigma_of(text: str) -> float | None:
    """SIGMA of ``lognormal:SIGMA``; None for any other text.

    Raises
    ------
    UserError
        When it is not a finite number >= 0.
    """
    kind, colon, argument = text.partition(":")
    if kind != "lognormal":
        return None
    try:
        sigma = float(argument)
    except ValueError:
        sigma = -1.0
    if not (colon and sigma >= 0 and isfinite(sigma)):
        raise not_allowed("devices", text, DEVICES)
    return sigma


def absolute_devices(text: str) -> str:
    """The value with a file's path made absolute, for a process in another folder.

    Raises
    ------
    UserError
        For a lognormal with an invalid SIGMA.
    """
    return text if text in NAMED or sigma_of(text) is not None else absolute(text)


class Devices(ServerHook):
    """Counts the seconds that the rounds take on the clients' devices.

    Parameters
    ----------
    run : RunInfo
        The run.
    ends : callable, optional
        Maps a round's number and its start to its end, in seconds since the run began. None without devices.
    """

    place = 110
    reserves = (SIMULATED_SECONDS,)

    def __init__(self, run: RunInfo, ends: Callable[[int, float], float] | None) -> None:
        super().__init__(run)
        self.ends = ends
        self.header = self.reserves if ends else ()
        self.now: dict[str, float] = {}

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        devices, deadline, more = config["devices"], config["round-deadline"], config["over-select"]
        if devices == NONE:
            if deadline:
                wanted = "0 without devices: it is in simulated seconds (round-timeout bounds real ones)"
                yield Conflict("round-deadline", deadline, wanted)
            if more > 1:
                yield Conflict("over-select", more, "1 without devices: they decide who answers first")
            return
        if config["dp"] != NONE:
            wanted = f"none with dp {config['dp']!r}: seconds depend on a client's number of examples"
            yield Conflict("devices", devices, wanted)
        if InputSpec.parse(config["dataset"]):
            wanted = f"none with dataset {config['dataset']!r}: clients' numbers of examples are not known"
            yield Conflict("devices", devices, wanted)
        if more > 1 and sampled(config) == num_training(config):
            yield Conflict("over-select", more, "1 where all clients train: there are no others to ask")

    def published(
        self, model: ArrayRecord, before: ArrayRecord, sent: ArrayRecord, moment: Moment
    ) -> ArrayRecord:
        if self.ends:
            moment.totals.simulated_seconds = self.ends(moment.number, moment.totals.simulated_seconds)
            self.now = {SIMULATED_SECONDS: round(moment.totals.simulated_seconds, 3)}
        return model

    def columns(self) -> Mapping[str, float]:
        return self.now
