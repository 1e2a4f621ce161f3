"""What changes or watches a run without being an algorithm: `ServerHook`, and `Extension`, which is one at a
site, too."""

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
"""Called with the phase, the number of replies so far, and the number of messages."""


Carry = Callable[[str, list[Message]], Iterable[Message]]
"""Sends a phase's messages and returns their replies."""
Configure = Callable[[], Iterable[Message]]
"""Calls the rule's ``configure_train`` and returns its messages."""


@dataclass(frozen=True)
class Stop:
    """Why a round is to be the last one: ``stopped`` in ``summary.json``."""

    reason: str


class Exchange(Protocol):
    """Carries a round's messages; see `server.exchange.Exchange`.

    `ServerHook.prepare` may replace ``carry``, which sends a phase's messages and returns their replies, and
    ``train``, which returns the answers to the round's train messages from the server's model and what
    configures them; by default it sends these.
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
        """Send messages whose answers are to be looked for; each goes through `received`."""

    def received(self, reply: Message, asked: Message | None) -> Message:
        """Count a reply; return it as the server reads it."""


@dataclass(frozen=True)
class Moment:
    """A round that has begun.

    Parameters
    ----------
    number : int
        Of the round, from 1 on.
    last : bool
        Whether it is known to be the last one.
    splits : str
        The splits that it is evaluated on, with commas; empty without evaluation.
    tests : bool
        Whether the test set is among them.
    shared, stepped : tuple[str, ...]
        The entries of the model that travel, and those of them that the server's rule steps.
    rounded : frozenset[str]
        The entries that clients get in bfloat16.
    rule : PseudoGradientStrategy
        The server's rule.
    exchange : Exchange
        Carries the round's messages.
    on_answer : callable
        Told of answers that count.
    totals : RunTotals
        Of the run so far.
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
    """What an extension does in the server's process, from before the first round to the end.

    Each hook has a neutral default. It is also an `Observer`: of its methods `on_round` comes last, when all
    extensions have decided.

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

    reserves: ClassVar[Sequence[str]] = ()
    """Columns of ``metrics.csv`` that are no other extension's, also while this one has none."""
    beside: ClassVar[bool] = False
    """Whether `summary` stands beside the other entries of ``summary.json``, not under ``extensions``."""
    header: Sequence[str] = ()
    """Columns of ``metrics.csv`` that are there from the first round on, beside those to come; may be set in
    ``__init__``."""
    notices: Sequence[str] = ()
    """Warnings of what is allowed but hardly meant, one line each; may be set in ``__init__``."""

    def __init__(self, run: RunInfo, **settings: Any) -> None:
        self.run = run
        for attribute, value in checked(type(self), settings).items():
            setattr(self, attribute, value)

    # ---- a round, in this order ----------------------------------------------------------------------

    def before_round(self, server_round: int) -> Stop | None:
        """Return why the round that is about to begin is to be the last one, or None."""
        return None

    def prepare(self, moment: Moment) -> None:
        """Set what the server's rule and the round's exchange need.

        ``moment.rule.node_choice`` is called with the partitions that are available and the round's number,
        and returns which may be asked to train. See `Exchange` for what may be replaced there.
        """

    def send(self, model: ArrayRecord, moment: Moment) -> ArrayRecord:
        """Return the model as clients get it, to train or to evaluate."""
        return model

    def settings(self, phase: str, moment: Moment) -> Mapping[str, Any]:
        """Return what messages of a phase, ``train`` or ``evaluate``, say beside the model."""
        return {}

    def received(self, answer: Message, asked: Message, moment: Moment) -> Message:
        """Return an answer to a train message as the server reads it."""
        return answer

    def published(
        self, model: ArrayRecord, before: ArrayRecord, sent: ArrayRecord, moment: Moment
    ) -> ArrayRecord:
        """Return the server's next model.

        Parameters
        ----------
        model : ArrayRecord
            What the rule made of the model that was sent; ``before`` if it made nothing.
        before, sent : ArrayRecord
            The server's model when the round began, and as clients got it.
        moment : Moment
            The round.
        """
        return model

    def evaluate(
        self, model: ArrayRecord, settings: Mapping[str, Any], moment: Moment
    ) -> Mapping[str, PhaseReport]:
        """Return what clients that do not train found of the next model, by the name of a phase.

        Parameters
        ----------
        model : ArrayRecord
            The next model.
        settings : Mapping[str, Any]
            What messages to evaluate say beside it.
        moment : Moment
            The round.
        """
        return {}

    def after_round(self, result: RoundResult) -> Stop | RoundResult | None:
        """Return why this round is to be the last one; or the round as it is written, and as those that come
        after see it, with ``kept``, ``improved`` and ``stopped`` as the extension decides; or None."""
        return None

    # ---- what is written -----------------------------------------------------------------------------

    def columns(self) -> Mapping[str, float | Mapping[int, float]]:
        """Return the columns of the last round, by name: a number for its row in ``metrics.csv``, or numbers
        by partition for the clients that trained in it, in ``clients.csv``."""
        return {}

    def summary(self) -> Mapping[str, Any]:
        """Return what ``summary.json`` has of the run so far: values that JSON can hold."""
        return {}

    def state(self) -> Mapping[str, Any]:
        """Return what a checkpoint keeps, so that a resumed run goes on: arrays, and what JSON can hold."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`: an empty one, if nothing was kept."""


class Extension(ServerHook, SiteHook):
    """Something that takes part in a run without being an algorithm; a file of its own.

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
