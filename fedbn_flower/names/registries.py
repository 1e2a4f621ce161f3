"""A registry for each key that names something; keys with ``NAME``, ``NAME:ARGUMENT`` or ``FILE.py:NAME``."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

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

from .. import annexes
from ..core.errors import not_allowed
from ..core.named_call import OF_LIBRARY, is_of_library
from ..models import MODELS
from ..models.norms import NORMS, Norm
from .client_unions import parts, union
from .registry import FORMS, Registry, absolute
from .user_code import as_user_error

T = TypeVar("T")


class _Metrics(Registry[type[Metric]]):
    """Metrics, ours and torchmetrics'."""

    def _fits(self, value: object) -> bool:
        return super()._fits(value) or is_torchmetric(value)


class _Models(Registry[Callable[..., object]]):
    """Networks, ours and those of other libraries."""

    def find(self, name: str) -> Callable[..., object]:
        if not is_of_library(name):
            return super().find(name)
        of_library: Callable[[str], Callable[..., object]] = annexes.load("networks", "of-library", "model")
        return of_library(name)


STRATEGY = Registry("strategy", STRATEGIES, PseudoGradientStrategy)
CLIENT = Registry("client", CLIENTS, FedAvgClient, union, former=FORMER_NAMES["client"])
OBJECTIVE = Registry("objective", OBJECTIVES, Objective, former=FORMER_NAMES["objective"])
LOSS = Registry("loss", LOSSES, Loss)
PROBLEM = Registry("problem", PROBLEMS, Problem)
METRIC = _Metrics("metrics", METRICS, Metric)
MODEL = _Models("model", MODELS, forms=f"{FORMS}, or {OF_LIBRARY}")
SELECTION = Registry("selection", SELECTIONS, Selection)
COMPRESS = Registry("compress", CODECS, Codec)
NORM = Registry("norm", NORMS, Norm)
FUNCTIONS: Mapping[str, Callable[[str], object]] = {}
DATASET = Registry("dataset", FUNCTIONS, argument="'train' or 'test'")
"""Functions that return data; see `own_data.own_function`."""


def name_now(key: str, value: T) -> T | str:
    """Return a value of a key by today's name, if it is a former one."""
    return FORMER_NAMES.get(key, {}).get(str(value), value)


def models_named(name: str) -> list[str]:
    """The models that a ``+`` joins: the clients have them in turn."""
    return parts(name, MODELS)


WITH_ARGUMENT: dict[str, Registry[Any]] = {registry.key: registry for registry in (SELECTION, COMPRESS, NORM)}
"""What each of these keys names."""


def made(registry: Registry[type[T]], text: str, *more: object) -> T:
    """Return an object of the class that a value names, made of the argument, empty without one, and more.

    Raises
    ------
    UserError
        When there is no such class, or its argument is not allowed.
    """
    name, _, argument = text.partition(":")
    if is_code(registry.key, text):
        name, argument = text, ""
    cls: Callable[..., T] = registry.find(name)
    try:
        with as_user_error(registry.key, text, but=(ValueError,)):
            return cls(argument, *more)
    except ValueError as error:
        raise not_allowed(registry.key, text, str(error)) from None


def is_code(key: str, text: str) -> bool:
    """Whether a value is code: ``FILE.py:NAME`` or ``package.module:NAME``, not ``NAME:ARGUMENT``."""
    known, defined = text.partition(":")[0], text.rpartition(":")[2]
    return ":" in text and known not in WITH_ARGUMENT[key].names and defined.isidentifier()


def absolute_name(key: str, text: str) -> str:
    """Return the same for a process in another folder."""
    return absolute(text) if is_code(key, text) else text
