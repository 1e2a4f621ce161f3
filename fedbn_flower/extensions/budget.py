"""``dp``: the account of a run's privacy, and the end of a run whose budget is spent."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ..privacy.local_privacy import released
from ..privacy.site import only_trained, without_metrics
from ..records.columns import PRIVACY
from ..records.events import RoundResult, RunInfo
from .base import AtClient, Extension, Moment, Outgoing, Stop

LOGGER = logging.getLogger("flwr.fedbn")


class Account(Protocol):
    """The privacy of a run; see `privacy.run_privacy.RunPrivacy`."""

    def notices(self) -> Iterator[str]:
        """Yield warnings of what is allowed but hardly meant, one line each."""

    def begin_round(self, server_round: int) -> bool:
        """Return whether the budget is spent with this round, which is about to begin."""

    def ask(self, server_round: int, clients: Sequence[int]) -> None:
        """Hear which clients are about to be asked to train, by partition id."""

    def told(self) -> Mapping[str, float]:
        """Return what messages say of it."""

    def columns(self, server_round: int) -> Mapping[str, float]:
        """Return what ``metrics.csv`` has of a round that is done."""

    def summary(self) -> Mapping[str, Any]:
        """Return what ``summary.json`` says of it."""


class Budget(Extension):
    """Accounts each round before a client is asked, and ends a run whose budget is spent.

    Parameters
    ----------
    run : RunInfo
        The run.
    account : Account, optional
        Its privacy; None without.
    complete : callable
        Called with a round and the clients that it is about to ask, before they are accounted.
    """

    in_workers = True

    def __init__(
        self, run: RunInfo, account: Account | None, complete: Callable[[Sequence[int], Moment], None]
    ) -> None:
        super().__init__(run)
        self.account = account
        self.complete = complete
        self.spent = False
        self.last: Mapping[str, float] = {}

    def notices(self) -> Iterator[str]:
        yield from self.account.notices() if self.account else ()

    def before_round(self, server_round: int) -> Stop | None:
        self.spent = bool(self.account and self.account.begin_round(server_round))
        return Stop("budget") if self.spent else None

    def settings(self, phase: str, moment: Moment) -> Mapping[str, Any]:
        return self.account.told() if self.account else {}

    def asked(self, partitions: Sequence[int], moment: Moment) -> None:
        if self.account:
            self.complete(partitions, moment)
            self.account.ask(moment.number, partitions)

    @classmethod
    def trained(cls, outgoing: Outgoing, at: AtClient) -> Outgoing:
        """Return an update as it may leave a client: with noise, if clients are not to trust the server."""
        update = outgoing.update
        if at.config.dp == "local":
            update = released(at.config, at.client, at.received(), update, at.number)
        elif at.config.dp == "example":
            update = only_trained(at.client, at.received(), update)
        return outgoing.with_update(without_metrics(at.config, update))

    def after_round(self, result: RoundResult) -> Stop | None:
        self.last = self.account.columns(result.server_round) if self.account else {}
        if not self.spent:
            return None
        if result.server_round < self.run.rounds:
            LOGGER.warning("privacy: budget spent at round %d of %d", result.server_round, self.run.rounds)
        return Stop("budget")

    def header(self) -> Sequence[str]:
        return PRIVACY if self.account else ()

    def columns(self) -> Mapping[str, float]:
        return self.last

    def summary(self) -> Mapping[str, Any]:
        return {"privacy": self.account.summary()} if self.account else {}
