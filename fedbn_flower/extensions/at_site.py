"""`SiteHook`: an extension's hooks at a site, next to its data. It imports nothing from the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedbn_flower.clients import FedAvgClient, Received, Update, by_name

from .declared import Declared

Record = ArrayRecord | ConfigRecord | MetricRecord
HOOKS = ("trained", "evaluated", "group_sum", "answer")
"""The hooks of `SiteHook`."""


class AddsAnswers(Protocol):
    """Sums the answers of a group in the process that trained them."""

    def add(self, content: RecordDict, arrays: Mapping[str, NDArray]) -> None:
        """Add an answer, and the model that goes with it."""

    def records(self) -> Mapping[str, Record]:
        """Return the records of the sum, which one answer of the group carries."""


@dataclass(frozen=True)
class AtClient:
    """Where an update was trained.

    Parameters
    ----------
    client : FedAvgClient
        The client, with its task and its memory.
    received : callable
        Returns the received shared entries and further records; a copy at each call.
    config : Any
        The run's configuration, a `RunConfig`.
    asked : ConfigRecord
        The configuration in the server's message.
    number : int
        The round's number.
    context : Context
        The node's: its configuration, and its state in RAM between messages of the run.
    views : callable
        As ``received``, without a copy: not to be written to.
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
        The update as the server will see it (decoded), with metrics and further records.
    travels : Mapping[str, NDArray], optional
        The entries that are sent uncoded; by default all.
    codes : ArrayRecord, optional
        The codes of all other entries.
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


class SiteHook(Declared):
    """An extension's hooks at a site, and in the process of a simulated client: class methods, no instance.

    A site loads the user's extensions that the server's message names: all that override one of these hooks.
    """

    @classmethod
    def trained(cls, outgoing: Outgoing, at: AtClient) -> Outgoing:
        """Return the update as the client sends it."""
        return outgoing

    @classmethod
    def evaluated(
        cls, num_examples: int, metrics: Mapping[str, Any], at: AtClient
    ) -> Mapping[str, Record] | None:
        """Return records that replace those of a client's evaluation; None to send them unchanged.

        The first extension that returns records decides.
        """
        return None

    @classmethod
    def group_sum(cls, config: Any) -> AddsAnswers | None:
        """Return an object that sums a group's answers in a worker; None for the sum of the server's rule.

        Called if the class is `in_workers`; ``config`` is a `RunConfig`.
        """
        return None

    @classmethod
    def answer(cls, message: Message, context: Context, config: Any) -> Message | None:
        """Return the answer to a message that the extension sent; None for any other message."""
        return None
