"""What of an update may leave a client under differential privacy, beside the model."""

from __future__ import annotations

from fedbn_flower.clients import FedAvgClient, NamedArrays, Update, by_name

from ..core.ground.wire import LOCAL_NORM, LOCAL_STEPS
from .private_run import PrivateRun

PUBLIC = frozenset({LOCAL_STEPS, LOCAL_NORM})
"""What of the training metrics is public with ``dp`` example: it follows from what is counted."""


COUNTS_AS_ONE = 1
"""The number of examples that a client reports with ``dp`` local, where its own is private."""


def without_metrics(config: PrivateRun, update: Update) -> Update:
    """Return an update as it may leave: without metrics, but for those that are public.

    With ``dp`` example the numbers of examples, or of units, and of steps are public; otherwise nothing is.
    """
    if not config.against_server:
        return update
    if config.dp != "example":
        return Update(update.arrays, COUNTS_AS_ONE, {}, update.records)
    public = {name: value for name, value in update.metrics.items() if name in PUBLIC}
    return Update(update.arrays, update.num_examples, public, update.records)


def only_trained(client: FedAvgClient, received: NamedArrays, update: Update) -> Update:
    """Return an update in which what is not trained is as it was received.

    With ``dp`` example only gradients have noise, and a model might write other things into its buffers.
    """
    trained = {alias for name in client.trained_names for alias in client.aliases.get(name, (name,))}
    entries, before = by_name(update.arrays, client.shared_names), received.by_name()
    sent = {name: entries[name] if name in trained else before[name] for name in entries}
    return Update(NamedArrays(sent), update.num_examples, update.metrics, update.records)
