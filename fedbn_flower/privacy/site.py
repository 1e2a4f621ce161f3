"""What a site answers under the notions that protect it from the server: noise, what is public, or nothing.

A site decides by its own run configuration, never by what a message says. So a server that asks for other
splits, metrics after training, or statistics of the data gets a refusal.
"""

from __future__ import annotations

import logging

from flwr.common import Scalar

from fedbn_flower.clients import NamedArrays, Update
from fedbn_flower.strategies.messages.wire import EVAL_SPLITS, LOCAL_NORM, LOCAL_STEPS

from ..config.keys.privacy import AT_CLIENTS
from ..config.run_config import RunConfig
from ..core.errors import UserError

LOGGER = logging.getLogger("flwr.fedbn")

PUBLIC = frozenset({LOCAL_STEPS, LOCAL_NORM})
"""What of the training metrics is public with ``dp`` example: it follows from the numbers of examples."""
COUNTS_AS_ONE = 1
"""The number of examples that a client reports with ``dp`` local, where its own is private."""


def refuse_statistics(config: RunConfig, what: str) -> None:
    """Refuse to tell statistics of a site's data, where these are protected from the server.

    Raises
    ------
    UserError
        With ``dp`` local or example.
    """
    if config.dp in AT_CLIENTS:
        raise UserError(f"privacy: with dp {config.dp!r} this site tells no {what} of its data")


def refuse_evaluation(config: RunConfig) -> None:
    """Refuse to evaluate for the server, where a client sends no metrics.

    Raises
    ------
    UserError
        With ``dp`` local or example.
    """
    if not config.clients_report:
        raise UserError(f"privacy: with dp {config.dp!r} this client sends no metrics")


def training_config(config: RunConfig, received: dict[str, Scalar]) -> dict[str, Scalar]:
    """Return the settings of a round of training, without evaluation where no metrics leave."""
    return {**received, EVAL_SPLITS: ""} if config.dp in AT_CLIENTS else received


def without_metrics(config: RunConfig, update: Update) -> Update:
    """Return an update as it may leave: without metrics, but for those that are public.

    With ``dp`` example the numbers of examples and steps are public; with ``dp`` local nothing is.
    """
    if config.dp not in AT_CLIENTS:
        return update
    if config.dp == "local":
        return Update(update.arrays, COUNTS_AS_ONE, {}, update.records)
    public = {name: value for name, value in update.metrics.items() if name in PUBLIC}
    return Update(update.arrays, update.num_examples, public, update.records)


def update_of_failure(config: RunConfig, received: NamedArrays, error: Exception) -> Update:
    """Return what counts in the place of an update that is not finite.

    With ``dp`` local it is an update of 0, to which noise is added as to any other: a server that sends a
    model on which training diverges with some data only would otherwise learn of them.

    Raises
    ------
    Exception
        The error itself, where it tells nothing or is another one.
    """
    if config.dp != "local" or not isinstance(error, FloatingPointError):
        raise error
    LOGGER.warning("%s; this update counts 0", error)
    return Update(NamedArrays(received.by_name()), COUNTS_AS_ONE, {})
