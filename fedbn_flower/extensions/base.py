"""`Extension`, the base of what changes or watches a run without being an algorithm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.ground.settings import checked
from ..records.events import Observer, RoundResult, RunInfo
from .conflict import Conflict


@dataclass(frozen=True)
class Stop:
    """Why a round is to be the last one: ``stopped`` in ``summary.json``."""

    reason: str


class Extension(Observer):
    """Something that takes part in a run without being an algorithm; a file of its own.

    It declares its settings as a server rule does, and overrides the hooks that it needs. Each hook has a
    neutral default::

        class Plateau(Extension):
            \"\"\"Ends a run in which the training loss hardly falls.\"\"\"

            least_fall: float = setting(0.01, ge=0, description="fall of the loss that goes on with the run")

            def __init__(self, run, **settings):
                super().__init__(run, **settings)
                self.before = math.inf

            def after_round(self, result):
                fall, self.before = self.before - result.means["train-loss"], result.means["train-loss"]
                return Stop("plateau") if fall < self.least_fall else None

    It lives in the server's process, from before the first round to the end. It is also an `Observer`: of its
    methods `on_round` comes last, when all extensions have decided.

    Parameters
    ----------
    run : RunInfo
        The run; its ``folder`` is None here, and known from `on_start` on.
    **settings
        The settings that the class declares, by attribute.

    Raises
    ------
    ValueError
        For a setting out of its range; the message names it.
    """

    def __init__(self, run: RunInfo, **settings: Any) -> None:
        self.run = run
        for attribute, value in checked(type(self), settings).items():
            setattr(self, attribute, value)

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        """Yield what of a run's configuration, by key, the extension does not go with."""
        yield from ()

    def after_round(self, result: RoundResult) -> Stop | None:
        """Return why this round is to be the last one, or None."""
        return None

    def keeps(self) -> bool | None:
        """Return whether the model of the last round is the best so far, and so the one to keep.

        None is no opinion: then the last model is kept.
        """
        return None

    def columns(self) -> Mapping[str, float]:
        """Return the columns of the last round in ``metrics.csv``, by name."""
        return {}

    def summary(self) -> Mapping[str, Any]:
        """Return what ``summary.json`` has of the run so far: values that JSON can hold."""
        return {}

    def state(self) -> Mapping[str, Any]:
        """Return what a checkpoint keeps, so that a resumed run goes on: values that JSON can hold."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""
