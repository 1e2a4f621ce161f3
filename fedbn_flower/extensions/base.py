"""`Conflict`: what of a run's configuration an extension does not go with.

`Extension`, the base of what changes or watches a run without being an algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedbn_flower.clients import FedAvgClient, Received, Update, by_name
from fedbn_flower.strategies import PhaseReport, PseudoGradientStrategy

from ..core.errors import UserError, not_allowed
from ..core.ground.settings import checked
from ..records.checkpoint import RunTotals
from ..records.events import Observer, RoundResult, RunInfo


@dataclass(frozen=True)
class Conflict:
    """A key whose value does not go with an extension, and what is allowed in its place."""

    key: str
    value: object
    allowed: str

    @property
    def error(self) -> UserError:
        """The error that a run's caller gets."""
        return not_allowed(self.key, self.value, self.allowed)


@dataclass(frozen=True)
class Unused(Conflict):
    """A key that was given, and that nothing uses; ``allowed`` says when something would."""

    @property
    def error(self) -> UserError:
        return UserError(f"{self.key}: {self.value} is not used {self.allowed}")


Record = ArrayRecord | ConfigRecord | MetricRecord
OnAnswer = Callable[[str, int, int], None]
"""Called with the phase, the number of replies so far, and the number of messages."""


@dataclass(frozen=True)
class Stop:
    """Why a round is to be the last one: ``stopped`` in ``summary.json``."""

    reason: str


class AddsAnswers(Protocol):
    """Adds the answers of a group in the process that has trained them."""

    def add(self, content: RecordDict, arrays: Mapping[str, NDArray]) -> None:
        """Add an answer, and the model that goes with it."""

    def records(self) -> Mapping[str, Record]:
        """Return the records of the sum, which one answer of the group carries."""


class Exchange(Protocol):
    """Carries a round's messages; see `server.exchange.Exchange`."""

    grid: Grid
    timeout: float
    summed: bool
    read: Callable[[Message, Message], Message]
    carry: Callable[[str, list[Message]], Iterable[Message]]
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


@dataclass(frozen=True)
class AtClient:
    """Where an update was trained.

    Parameters
    ----------
    client : FedAvgClient
        The client, with its task and its memory.
    received : callable
        Returns the shared entries that it got, and further records; a copy at each call.
    config : Any
        The run's configuration, a `RunConfig`.
    asked : ConfigRecord
        What the server's message says beside the model.
    number : int
        Of the round.
    context : Context
        Of its node: its configuration, and what it keeps in RAM from one message of the run to the next.
    views : callable
        Returns the same as ``received`` without a copy: not to be written to.
    """

    client: FedAvgClient
    received: Callable[[], Received]
    config: Any
    asked: ConfigRecord
    number: int
    context: Context
    views: Callable[[], Received]


@dataclass(frozen=True)
class Outgoing:
    """What a client is about to send.

    Parameters
    ----------
    update : Update
        The update as the server will have it, with metrics and further records.
    travels : Mapping[str, NDArray], optional
        The entries that are sent as they are, where ``codes`` stand for the others; by default all.
    codes : ArrayRecord, optional
        What stands for the others.
    """

    update: Update
    travels: Mapping[str, NDArray] | None = None
    codes: ArrayRecord | None = None

    def model(self, names: Sequence[str]) -> dict[str, NDArray]:
        """Return the update's entries by name; ``names`` are those of the client that are shared."""
        return {name: np.asarray(array) for name, array in by_name(self.update.arrays, names).items()}

    def with_update(self, update: Update) -> Outgoing:
        """Return the same with another update."""
        return replace(self, update=update)


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

    It lives in the server's process, from before the first round to the end; only `trained` is called where
    clients are. It is also an `Observer`: of its methods `on_round` comes last, when all extensions have
    decided.

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

    next_to: ClassVar[type[Extension] | None] = None
    """Of an annex's, the built-in extension that it is next to, nearer to the wire."""
    in_workers: ClassVar[bool] = False
    """Whether `trained` may run in a worker that sums the updates of a group of clients: what it makes of an
    update must be all that the server needs. Without it, a simulation of clients whose updates `trained`
    changes sends every update by itself."""

    def __init__(self, run: RunInfo, **settings: Any) -> None:
        self.run = run
        for attribute, value in checked(type(self), settings).items():
            setattr(self, attribute, value)

    published_only: ClassVar[bool] = False
    """Whether it uses nothing of the answers but what is published: the model, and what follows from it. Only
    such an extension goes with ``dp``."""

    # ---- before the run ------------------------------------------------------------------------------

    @classmethod
    def made_of(cls, federation: Any) -> Mapping[str, Any]:
        """Return what an annex's extension is made of beside the run, of a `Federation`."""
        return {}

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        """Yield what of a run's configuration, by key, the extension does not go with."""
        yield from ()

    def notices(self) -> Iterator[str]:
        """Yield warnings of what is allowed but hardly meant, one line each."""
        yield from ()

    @classmethod
    def papers(cls, config: Mapping[str, Any]) -> Sequence[str]:
        """Return what to cite of a run's configuration: keys of ``papers.md``. Keys may be missing."""
        return ()

    @classmethod
    def keeps_state(cls, config: Any) -> bool:
        """Return whether clients need what their nodes keep in RAM between messages; a `RunConfig`."""
        return False

    @classmethod
    def apart(cls, config: Any) -> str:
        """Return why clients cannot evaluate a round's model with the next one's training, of a `RunConfig`.

        Empty if they can, as far as a built-in extension is concerned.
        """
        return ""

    # ---- a round, in this order ----------------------------------------------------------------------

    def before_round(self, server_round: int) -> Stop | None:
        """Return why the round that is about to begin is to be the last one, or None."""
        return None

    def prepare(self, moment: Moment) -> None:
        """Set what the server's rule needs in this round."""

    def choose(self, partitions: Sequence[int], server_round: int) -> Sequence[int]:
        """Return which of the clients that are available may be asked to train, by partition."""
        return partitions

    def send(self, model: ArrayRecord, moment: Moment) -> ArrayRecord:
        """Return the model as clients get it, to train or to evaluate."""
        return model

    def settings(self, phase: str, moment: Moment) -> Mapping[str, Any]:
        """Return what messages of a phase, ``train`` or ``evaluate``, say beside the model."""
        return {}

    def asked(self, partitions: Sequence[int], moment: Moment) -> None:
        """Hear which clients are about to be asked to train."""

    def answers(
        self, moment: Moment, model: ArrayRecord, configure: Callable[[], Iterable[Message]]
    ) -> Iterable[Message] | None:
        """Return the answers to the round's train messages; None to have them sent and awaited as usual.

        Parameters
        ----------
        moment : Moment
            The round.
        model : ArrayRecord
            The server's model.
        configure : callable
            Calls the rule's ``configure_train`` and returns its messages.
        """
        return None

    @classmethod
    def trained(cls, outgoing: Outgoing, at: AtClient) -> Outgoing:
        """Return what a client sends in the place of what it trained. The client's process calls it."""
        return outgoing

    @classmethod
    def evaluated(
        cls, num_examples: int, metrics: Mapping[str, Any], at: AtClient
    ) -> Mapping[str, Record] | None:
        """Return the records that a client sends in the place of what it found of a model; None to send that.

        As `trained`, of a built-in extension.
        """
        return None

    @classmethod
    def group_sum(cls, config: Any) -> AddsAnswers | None:
        """Return what adds a group's answers in a worker; None for the sum that the server's rule makes.

        Of a built-in extension that is `in_workers`.
        """
        return None

    @classmethod
    def answer(cls, message: Message, context: Context, config: Any) -> Message | None:
        """Return a client's answer to a message of a built-in extension's own, or None to others."""
        return None

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

    def recorded(self, result: RoundResult) -> RoundResult:
        """Return a round as it is written, and as the other extensions see it."""
        return result

    def after_round(self, result: RoundResult) -> Stop | None:
        """Return why this round is to be the last one, or None."""
        return None

    def keeps(self) -> bool | None:
        """Return whether the model of the last round is the best so far, and so the one to keep.

        None is no opinion: then the last model is kept.
        """
        return None

    # ---- what is written -----------------------------------------------------------------------------

    def header(self) -> Sequence[str]:
        """Return columns of ``metrics.csv`` that are there from the first round on, beside those to come."""
        return ()

    def columns(self) -> Mapping[str, float]:
        """Return the columns of the last round in ``metrics.csv``, by name."""
        return {}

    def columns_of_clients(self) -> Mapping[int, Mapping[str, float]]:
        """Return columns of the clients that trained in the last round in ``clients.csv``, by partition."""
        return {}

    def summary(self) -> Mapping[str, Any]:
        """Return what ``summary.json`` has of the run so far: values that JSON can hold."""
        return {}

    @classmethod
    def seen(cls, found: Mapping[str, Any]) -> Iterator[str]:
        """Yield paragraphs of the report on what the server saw, from what `summary` has under its name."""
        yield from ()

    def state(self) -> Mapping[str, Any]:
        """Return what a checkpoint keeps, so that a resumed run goes on: arrays, and what JSON can hold."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`: an empty one, if nothing was kept."""

    def check_end(self) -> None:
        """Check a run that is over, before it counts as complete.

        Raises
        ------
        RunFailed
            When it has failed after all.
        """
