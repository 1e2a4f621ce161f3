"""`SiteHook`: what an extension does beside a site's data. It imports nothing of the server."""

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
"""Those of `SiteHook`."""


class AddsAnswers(Protocol):
    """Adds the answers of a group in the process that has trained them."""

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


class SiteHook(Declared):
    """What an extension does at a site, and in the process of a simulated client: class methods, no instance.

    Of a run's own extensions a site loads those that the server's message names: all that override a hook.
    """

    @classmethod
    def trained(cls, outgoing: Outgoing, at: AtClient) -> Outgoing:
        """Return what a client sends in the place of what it trained."""
        return outgoing

    @classmethod
    def evaluated(
        cls, num_examples: int, metrics: Mapping[str, Any], at: AtClient
    ) -> Mapping[str, Record] | None:
        """Return the records that a client sends in the place of what it found of a model; None to send that.

        The first that returns some decides.
        """
        return None

    @classmethod
    def group_sum(cls, config: Any) -> AddsAnswers | None:
        """Return what adds a group's answers in a worker; None for the sum that the server's rule makes.

        Of one that is `in_workers`; ``config`` is a `RunConfig`.
        """
        return None

    @classmethod
    def answer(cls, message: Message, context: Context, config: Any) -> Message | None:
        """Return a client's answer to a message of the extension's own, or None to others."""
        return None
