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
"""Trains clients at once on what they received, with one configuration: what came of each."""


@dataclass(frozen=True)
class Cohort:
    """How clients of a run train.

    Parameters
    ----------
    size : int
        How many at once.
    why : str
        In words.
    fit : Fit, optional
        What trains so many; None for one.
    is_wrong : bool
        Whether they are one by one since a class says what is not true.
    """

    size: int
    why: str
    fit: Fit | None = None
    is_wrong: bool = False


ONE_BY_ONE = Cohort(1, "nothing here trains several at once")


def cohort_of(inputs: RunInputs) -> Cohort:
    """Return how a run's clients train: as an annex finds that they can, or one by one."""
    found = (cohort_of(inputs) for cohort_of in annexes.brought("cohorts").values())
    return next(found, ONE_BY_ONE)


def cohort_size(inputs: RunInputs) -> int:
    """Return how many clients train at once; log it, with the reason.

    Where a class says what is not true, it is a warning.
    """
    cohort = cohort_of(inputs)
    how = "one by one" if cohort.size == 1 else f"{cohort.size} at a time"
    LOGGER.log(logging.WARNING if cohort.is_wrong else logging.INFO, "clients train %s: %s", how, cohort.why)
    return cohort.size
