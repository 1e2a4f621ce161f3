"""A registry for each key that names something; those of models and norms are in `models.named`.

Keys have ``NAME``, ``NAME:ARGUMENT`` or ``FILE.py:NAME``.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from fedbn_flower.clients import (
    CLIENTS,
    FORMER_NAMES,
    LOSSES,
    METRICS,
    OBJECTIVES,
    PROBLEMS,
    FedAvgClient,
    Loss,
    Metric,
    Objective,
    Problem,
)
from fedbn_flower.clients.problems.metrics.from_torchmetrics import is_torchmetric
from fedbn_flower.strategies import CODECS, SELECTIONS, STRATEGIES, Codec, PseudoGradientStrategy, Selection

from ..core.errors import not_allowed
from .client_unions import union
from .registry import Registry
from .user_code import as_user_error

T = TypeVar("T")


class _Metrics(Registry[type[Metric]]):
    """Metrics, ours and torchmetrics'."""

    def _fits(self, value: object) -> bool:
        return super()._fits(value) or is_torchmetric(value)


STRATEGY = Registry("strategy", STRATEGIES, PseudoGradientStrategy)
CLIENT = Registry("client", CLIENTS, FedAvgClient, union, former=FORMER_NAMES["client"])
OBJECTIVE = Registry("objective", OBJECTIVES, Objective, former=FORMER_NAMES["objective"])
LOSS = Registry("loss", LOSSES, Loss)
PROBLEM = Registry("problem", PROBLEMS, Problem)
METRIC = _Metrics("metrics", METRICS, Metric)
SELECTION = Registry("selection", SELECTIONS, Selection)
COMPRESS = Registry("compress", CODECS, Codec)
FUNCTIONS: Mapping[str, Callable[[str], object]] = {}
DATASET = Registry("dataset", FUNCTIONS, argument="'train' or 'test'")
"""Functions that return data; see `own_data.own_function`."""


def name_now(key: str, value: T) -> T | str:
    """Return a value of a key by today's name, if it is a former one."""
    return FORMER_NAMES.get(key, {}).get(str(value), value)


def made(registry: Registry[type[T]], text: str, *more: object) -> T:
    """Return an object of the class that a value names, made of the argument, empty without one, and more.

    Raises
    ------
    UserError
        When there is no such class, or its argument is not allowed.
    """
    name, _, argument = text.partition(":")
    if registry.is_code(text):
        name, argument = text, ""
    cls: Callable[..., T] = registry.find(name)
    try:
        with as_user_error(registry.key, text, but=(ValueError,)):
            return cls(argument, *more)
    except ValueError as error:
        raise not_allowed(registry.key, text, str(error)) from None
