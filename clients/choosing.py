"""A client chooses one of several models: the one with the least loss on its training examples."""

from __future__ import annotations

import math
from collections.abc import Mapping

from numpy.typing import NDArray

from fedbn_flower.core.ground.columns import TRAIN

from .base import FedAvgClient
from .modules.surroundings import usual_surroundings
from .problems.evaluation import evaluate_splits


@usual_surroundings()
def chosen(client: FedAvgClient, models: Mapping[str, Mapping[str, NDArray]]) -> str:
    """Return the name of the model that fits a client best, the first one on a tie.

    Parameters
    ----------
    client : FedAvgClient
        The client, whose local entries complete each of the models.
    models : Mapping[str, Mapping[str, NDArray]]
        The shared entries of each model, by name.

    Raises
    ------
    FloatingPointError
        When no model has a finite loss.
    """
    losses = {name: _loss(client, entries) for name, entries in models.items()}
    best = min(losses, key=lambda name: losses[name])
    if not math.isfinite(losses[best]):
        raise FloatingPointError("no model has a finite loss on the training examples")
    return best


def _loss(client: FedAvgClient, entries: Mapping[str, NDArray]) -> float:
    """Return a model's mean loss on the client's training examples; infinity if it is not finite."""
    task = client.task
    client.load(task.model.state_dict(), entries)  # type: ignore[arg-type]
    try:
        return float(evaluate_splits(task.model, task.evaluation, TRAIN, task.problem)["loss"])
    except FloatingPointError:
        return math.inf
