"""The metrics that an app expects from its clients, and their ranges."""

import logging
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedbn_flower.core.ground.wire import STATES

from .messages.gate import ReplyRefused
from .messages.validation import Range, check_arrays

LONGEST_NAME = 100  # characters
MAX_COUNT = 2**43  # of a state: a sum over a million clients still fits int64

LOGGER = logging.getLogger("flwr.strategies")


def agrees(metrics: MetricRecord, states: Mapping[str, NDArray]) -> str:
    """Accept any metrics and states."""
    return ""


@dataclass(frozen=True)
class ExpectedMetrics:
    """The metrics that an app expects from its clients, in both phases. By default anything is allowed.

    Parameters
    ----------
    ranges : Mapping[str, Range]
        Ranges of the metrics that the app uses, by name.
    taken : Collection[str]
        Reserved names: no other metric may have one.
    taken_beginnings : tuple[str, ...]
        Reserved prefixes of names.
    most : float
        Maximum number of further metrics in an answer.
    longest : float
        Maximum total length of their lists.
    states : Mapping[str, NDArray]
        Arrays with the shape and dtype of each state, by name.
    disagreement : callable
        Returns why an answer's metrics and states contradict each other; "" if they agree.
    """

    ranges: Mapping[str, Range] = field(default_factory=dict)
    taken: Collection[str] = frozenset()
    taken_beginnings: tuple[str, ...] = ()
    most: float = math.inf
    longest: float = math.inf
    states: Mapping[str, NDArray] = field(default_factory=dict)
    disagreement: Callable[[MetricRecord, Mapping[str, NDArray]], str] = agrees

    def read(self, content: RecordDict, metrics: MetricRecord) -> dict[str, NDArray]:
        """Check an answer with these metrics; return its states by name.

        Raises
        ------
        ReplyRefused
            As `check` and `check_states`, and where metrics and states disagree.
        """
        self.check(metrics)
        states = self.check_states(content)
        if reason := self.disagreement(metrics, states):
            raise ReplyRefused(reason)
        return states

    def check(self, metrics: MetricRecord) -> None:
        """Check the metrics of one answer.

        Raises
        ------
        ReplyRefused
            For the first unexpected metric, or for too many.
        """
        further = [name for name in metrics if name not in self.ranges]
        if len(further) > self.most:
            raise ReplyRefused(f"{len(further)} further metrics, at most {self.most}", "metrics")
        for name in further:
            self._check_name(name)
        numbers = sum(len(value) for name in further if isinstance(value := metrics[name], list))
        if numbers > self.longest:
            raise ReplyRefused(f"{numbers} numbers in lists, at most {self.longest}", "metrics")
        for name, expected in self.ranges.items():
            if name in metrics and not expected.holds(value := metrics[name]):
                found = f"a list of {len(value)}" if isinstance(value, list) else str(value)
                raise ReplyRefused(f"{name!r} is {found}, not {expected}")

    def check_states(self, content: RecordDict) -> dict[str, NDArray]:
        """Return the states of an answer, by name; empty if it has none. Integer states are counts.

        Raises
        ------
        ReplyRefused
            For a state that is not expected, has another shape or dtype, is not finite, or should be a count
            but is not.
        """
        record = content.get(STATES)
        if not self.states or not isinstance(record, ArrayRecord):
            return {}
        if unexpected := sorted(record.keys() - self.states.keys()):
            raise ReplyRefused(f"{STATES}: unexpected {unexpected}", "names")
        found = check_arrays(record, {name: self.states[name] for name in record})
        for name, state in found.items():
            if state.dtype.kind == "i" and state.size and not 0 <= state.min() <= state.max() <= MAX_COUNT:
                raise ReplyRefused(f"{name}: counts from {state.min()} to {state.max()}, not in [0, 2^43]")
        return {name: np.array(state) for name, state in found.items()}

    def _check_name(self, name: str) -> None:
        if name in self.taken or name.startswith(self.taken_beginnings):
            raise ReplyRefused(f"the metric name {name!r} is reserved", "metrics")
        if math.isfinite(self.most) and not (name.isprintable() and 0 < len(name) <= LONGEST_NAME):
            shown, allowed = name[:LONGEST_NAME], f"1 to {LONGEST_NAME} printable characters"
            raise ReplyRefused(f"the metric name {shown!r} is not {allowed}", "metrics")


class FurtherNames:
    """The names of further metrics that clients report, limited because each new one adds a column.

    If ``most`` bounds them in an answer, a run accepts twice as many, since each phase may have its own, and
    new ones in `ROUNDS` rounds. Others are removed from the answers, with one warning.
    """

    ROUNDS = 10

    def __init__(self) -> None:
        self._first: dict[str, int] = {}
        self._warned = False

    def admit(self, server_round: int, metrics: MetricRecord, expected: ExpectedMetrics) -> None:
        """Register the names of an answer's metrics, and remove metrics in excess."""
        if math.isinf(expected.most):
            return
        for name in [name for name in metrics if name not in expected.ranges and name not in self._first]:
            rounds = {*self._first.values(), server_round}
            if len(self._first) < 2 * expected.most and len(rounds) <= self.ROUNDS:
                self._first[name] = server_round
                continue
            del metrics[name]
            if not self._warned:
                self._warned = True
                LOGGER.warning(
                    "round %d: the metric %r is left out, and so is every new one: clients have reported %d "
                    "beyond those of the run, new ones in %d rounds",
                    server_round,
                    name,
                    len(self._first),
                    len({*self._first.values()}),
                )
