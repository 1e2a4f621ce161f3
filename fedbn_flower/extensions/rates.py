"""``client-lr-schedule`` and ``server-lr-schedule``: the learning rates of a round."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flwr.app import MessageType

from fedbn_flower.strategies import PseudoGradientStrategy

from ..core.ground.wire import CLIENT_LR
from ..records.events import RoundResult, RunInfo
from .base import Extension, Moment


class Rates(Extension):
    """Tells clients their learning rate, and sets the rule's, in runs with a schedule.

    Parameters
    ----------
    run : RunInfo
        The run.
    scheduled : callable
        Returns the learning rates of a round by key, of those that have a schedule.
    set_rates : callable
        Sets a rule's ``server-lr`` to that of a round, if it has a schedule.
    """

    def __init__(
        self,
        run: RunInfo,
        scheduled: Callable[[int], Mapping[str, float]],
        set_rates: Callable[[PseudoGradientStrategy, int], None],
    ) -> None:
        super().__init__(run)
        self.scheduled = scheduled
        self.set_rates = set_rates
        self.rates: Mapping[str, float] = {}

    def prepare(self, moment: Moment) -> None:
        self.set_rates(moment.rule, moment.number)

    def settings(self, phase: str, moment: Moment) -> Mapping[str, Any]:
        if phase != MessageType.TRAIN and not self.run.config["fine-tune"]:
            return {}
        return {CLIENT_LR: self.scheduled(moment.number).get(CLIENT_LR, self.run.config[CLIENT_LR])}

    def after_round(self, result: RoundResult) -> None:
        self.rates = self.scheduled(result.server_round)

    def header(self) -> Sequence[str]:
        return [*self.scheduled(1)]

    def columns(self) -> Mapping[str, float]:
        return self.rates
