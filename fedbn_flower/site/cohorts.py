"""How many clients a process trains at once."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flwr.common import Scalar

from fedbn_flower.clients import FedAvgClient, Received, Update

from .. import annexes
from ..job.inputs import RunInputs

LOGGER = logging.getLogger("flwr.fedbn")

Fit = Callable[[Sequence[FedAvgClient], Received, dict[str, Scalar]], list[Update | Exception]]
"""Trains clients that received the same records and settings; returns each one's update or error."""
Evaluated = tuple[float, int, dict[str, Scalar]]
"""As a client's `evaluate` returns it."""
Evaluate = Callable[[Sequence[FedAvgClient], Received, dict[str, Scalar]], list[Evaluated | None]]
"""Evaluates such clients; returns each one's result, or None for a client that has to do so alone."""


@dataclass(frozen=True)
class Cohort:
    """How clients of a run train.

    Parameters
    ----------
    size : int
        Number of clients trained at once.
    why : str
        The reason for this size, in words.
    fit : Fit, optional
        The function that trains them at once; None for one.
    is_wrong : bool
        Whether clients train one by one because a class made a false declaration.
    """

    size: int
    why: str
    fit: Fit | None = None
    is_wrong: bool = False


ONE_BY_ONE = Cohort(1, "nothing here trains several at once")


def cohort_of(inputs: RunInputs) -> Cohort:
    """Return how a run's clients train: at once if an annex can do that for this run, else one by one."""
    found = (cohort_of(inputs) for cohort_of in annexes.brought("cohorts").values())
    return next(found, ONE_BY_ONE)


def evaluate_of(inputs: RunInputs) -> Evaluate | None:
    """Return what evaluates a run's cohorts at once; None if clients are evaluated one by one."""
    return next((found(inputs) for found in annexes.brought("evaluations").values()), None)


def cohort_size(inputs: RunInputs) -> int:
    """Return how many clients train at once; log the number and the reason.

    The log line is a warning if a class made a false declaration.
    """
    cohort = cohort_of(inputs)
    how = "one by one" if cohort.size == 1 else f"{cohort.size} at a time"
    LOGGER.log(logging.WARNING if cohort.is_wrong else logging.INFO, "clients train %s: %s", how, cohort.why)
    return cohort.size
