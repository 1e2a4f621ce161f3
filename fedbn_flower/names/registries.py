"""A registry for each key that names something."""

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

from ..models import MODELS
from ..models.libraries import FORM as OF_LIBRARY
from ..models.libraries import is_of_library, of_library
from ..models.norms import NORMS, Norm
from .client_unions import parts, union
from .registry import FORMS, Registry

T = TypeVar("T")


class _Metrics(Registry[type[Metric]]):
    """Metrics, ours and torchmetrics'."""

    def _fits(self, value: object) -> bool:
        return super()._fits(value) or is_torchmetric(value)


class _Models(Registry[Callable[..., object]]):
    """Networks, ours and those of other libraries."""

    def find(self, name: str) -> Callable[..., object]:
        return of_library(name) if is_of_library(name) else super().find(name)


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
"""Functions that return data; see `data.readers.own_function`."""


def name_now(key: str, value: T) -> T | str:
    """Return a value of a key by today's name, if it is a former one."""
    return FORMER_NAMES.get(key, {}).get(str(value), value)


def models_named(name: str) -> list[str]:
    """The models that a ``+`` joins: the clients have them in turn."""
    return parts(name, MODELS)
