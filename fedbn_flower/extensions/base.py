"""Base classes of what changes or watches a run without being an algorithm: `ServerHook`, and `Extension`,
which acts at sites, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid

from fedbn_flower.strategies import PhaseReport, PseudoGradientStrategy

from ..core.ground.settings import checked
from ..records.checkpoint import RunTotals
from ..records.events import Observer, RoundResult, RunInfo
from .at_site import SiteHook
from .declared import Declared

OnAnswer = Callable[[str, int, int], None]
"""Called with the phase, the number of replies so far and the number of messages."""


Carry = Callable[[str, list[Message]], Iterable[Message]]
"""Sends a phase's messages and returns their replies."""
Configure = Callable[[], Iterable[Message]]
"""Calls the rule's ``configure_train`` and returns its messages."""


@dataclass(frozen=True)
class Stop:
    """Ends the run with this round; the reason is ``stopped`` in ``summary.json``."""

    reason: str


class Exchange(Protocol):
    """Carries a round's messages; see `server.exchange.Exchange`.

    `ServerHook.prepare` may replace ``carry``, which sends a phase's messages and returns their replies, and
    ``train``, which gets the server's model and the function that configures train messages, and returns
    their answers; by default it sends them.
    """

    grid: Grid
    timeout: float
    summed: bool
    read: Callable[[Message, Message], Message]
    carry: Carry
    train: Callable[[ArrayRecord, Configure], Iterable[Message]]
    seconds: dict[str, float]
    bytes_sent: int
    bytes_received: int
    cases: dict[int, ArrayRecord]

    def answers(self, phase: str, messages: Iterable[Message], counted: bool = True) -> Iterator[Message]:
        """Send a phase's messages; yield the replies as they arrive."""

    def push(self, messages: Sequence[Message]) -> None:
        """Send messages without waiting; the caller polls for the answers and passes each to `received`."""

    def received(self, reply: Message, asked: Message | None) -> Message:
        """Count a reply; return it, decoded if it answers the train message ``asked``."""


@dataclass(frozen=True)
class Moment:
    """A round that has begun.

    Parameters
    ----------
    number : int
        The round's number, from 1.
    last : bool
        Whether the round is known to be the last one.
    splits : str
        The splits to evaluate on, separated by commas; empty without evaluation.
    tests : bool
        Whether the test set is one of the splits.
    shared, stepped : tuple[str, ...]
        The model entries that are shared, and those of them that the server's rule steps.
    rounded : frozenset[str]
        The entries that clients get in bfloat16.
    rule : PseudoGradientStrategy
        The server's rule.
    exchange : Exchange
        Carries the round's messages.
    on_answer : callable
        Called with answers that count.
    totals : RunTotals
        The run's totals so far.
    """

    number: int
    last: bool
    splits: str
    tests: bool
    shared: tuple[str, ...]
    stepped: tuple[str, ...]
    rounded: frozenset[str]
    rule: PseudoGradientStrategy
    exchange: Exchange
    on_answer: OnAnswer
    totals: RunTotals


class ServerHook(Declared, Observer):
    """An extension's hooks in the server's process, from before the first round to the end of the run.

    Each hook does nothing by default. A hook is also an `Observer`, whose `on_round` is called last, after
    the decisions of all extensions.

    Parameters
    ----------
    run : RunInfo
        The run; its ``folder`` is None until `on_start`.
    **settings
        The settings that the class declares, by attribute.

    Raises
    ------
    ValueError
        For a setting out of its range; the message names it.
    """

    reserves: ClassVar[Sequence[str]] = ()
    """Columns of ``metrics.csv`` that no other extension may use, even while this one has no values."""
    beside: ClassVar[bool] = False
    """Whether the entries of `summary` are at the top level of ``summary.json``, not under ``extensions``."""
    header: Sequence[str] = ()
    """Columns of ``metrics.csv`` that exist from the first round on; others may follow. May be set in
    ``__init__``."""
    notices: Sequence[str] = ()
    """Warnings of settings that are probably not intended, one line each; may be set in ``__init__``."""

    def __init__(self, run: RunInfo, **settings: Any) -> None:
        self.run = run
        for attribute, value in checked(type(self), settings).items():
            setattr(self, attribute, value)

    # ---- a round, in this order ----------------------------------------------------------------------

    def before_round(self, server_round: int) -> Stop | None:
        """Return a `Stop` if the round that is about to begin has to be the last one, or None."""
        return None

    def prepare(self, moment: Moment) -> None:
        """Prepare the server's rule and the round's exchange.

        ``moment.rule.node_choice`` is called with the partitions that are available and the round's number,
        and returns those that may be asked to train. `Exchange` says which of its methods may be replaced.
        """

    def send(self, model: ArrayRecord, moment: Moment) -> ArrayRecord:
        """Return the model as it is sent to clients, for training and evaluation."""
        return model

    def settings(self, phase: str, moment: Moment) -> Mapping[str, Any]:
        """Return settings for the messages of a phase, ``train`` or ``evaluate``."""
        return {}

    def received(self, answer: Message, asked: Message, moment: Moment) -> Message:
        """Return an answer to a train message, decoded for the server's rule."""
        return answer

    def published(
        self, model: ArrayRecord, before: ArrayRecord, sent: ArrayRecord, moment: Moment
    ) -> ArrayRecord:
        """Return the server's next model.

        Parameters
        ----------
        model : ArrayRecord
            The result of the rule's step from the model that was sent; ``before`` without a step.
        before, sent : ArrayRecord
            The server's model when the round began, and as clients got it.
        moment : Moment
            The round.
        """
        return model

    def evaluate(
        self, model: ArrayRecord, settings: Mapping[str, Any], moment: Moment
    ) -> Mapping[str, PhaseReport]:
        """Return evaluations of the next model by clients that do not train, by phase name.

        Parameters
        ----------
        model : ArrayRecord
            The next model.
        settings : Mapping[str, Any]
            The settings that evaluate messages carry in addition to the model.
        moment : Moment
            The round.
        """
        return {}

    def after_round(self, result: RoundResult) -> Stop | RoundResult | None:
        """Return a `Stop` to end the run with this round; or the round with the extension's decisions
        (``kept``, ``improved``, ``stopped``), as later extensions see it and as it is written; or None."""
        return None

    # ---- what is written -----------------------------------------------------------------------------

    def columns(self) -> Mapping[str, float | Mapping[int, float]]:
        """Return the last round's columns, by name: a number for ``metrics.csv``, or numbers by partition, of
        the clients that trained in it, for ``clients.csv``."""
        return {}

    def summary(self) -> Mapping[str, Any]:
        """Return the entries of ``summary.json`` on the run so far, as JSON values."""
        return {}

    def state(self) -> Mapping[str, Any]:
        """Return the state that a checkpoint keeps to resume the run: arrays and JSON values."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from a `state`, which is empty if none was kept."""


class Extension(ServerHook, SiteHook):
    """Something that takes part in a run without being an algorithm, in a file of its own.

    It declares its settings as a server rule does, and overrides the hooks that it needs::

        class Plateau(Extension):
            \"\"\"Ends a run in which the training loss hardly falls.\"\"\"

            least_fall: float = setting(0.01, ge=0, description="fall of the loss that goes on with the run")

            def __init__(self, run, **settings):
                super().__init__(run, **settings)
                self.before = math.inf

            def after_round(self, result):
                fall, self.before = self.before - result.means["train-loss"], result.means["train-loss"]
                return Stop("plateau") if fall < self.least_fall else None
    """
