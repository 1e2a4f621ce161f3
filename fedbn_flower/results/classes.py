"""Hits and examples by class: the accuracy on each, and the rows of ``classes.csv``."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.strategies.messages.validation import MAX_WEIGHT

from ..core.ground.wire import CLASS_EXAMPLES, CLASS_HITS
from ..data import Dataset
from ..records.events import RoundResult
from ..records.summary import OfClasses

HEADER = ("round", "partition", "class", "examples", "accuracy")
"""The columns of ``classes.csv``."""


def class_names(dataset: Dataset) -> list[str]:
    """Return the classes' names, or their numbers if unnamed; empty if there are no classes."""
    return dataset.output_names if dataset.has_classes else []


def accuracy_by_class(
    result: RoundResult, dataset: Dataset, shared: bool = False
) -> tuple[OfClasses | None, OfClasses | None]:
    """Return the accuracy on each class of the clients and of the global model; see `per_class`."""
    names, by_client = class_names(dataset), counts_by_client(result, dataset)
    server = class_counts(result.global_metrics or {}, result.prefix, len(names))
    of_global = per_class(names, [] if server is None else [server])
    return per_class(names, list(by_client.values()), shared), of_global


def class_rows(result: RoundResult, dataset: Dataset) -> list[dict[str, object]]:
    """Return a row per client and class, with the columns of `HEADER`; none without class counts."""
    names, found = class_names(dataset), counts_by_client(result, dataset)
    return [
        {
            "round": result.server_round,
            "partition": partition,
            "class": name,
            "examples": examples,
            "accuracy": hits / examples if examples else "",
        }
        for partition, counts in found.items()
        for name, hits, examples in zip(names, *counts.tolist(), strict=True)
    ]


def counts_by_client(result: RoundResult, dataset: Dataset) -> dict[int, Any]:
    """Return `class_counts` by partition, of each client that reported counts."""
    classes, split = len(class_names(dataset)), result.prefix
    found = {p: class_counts(m, split, classes) for p, m in result.evaluate.metrics.items()}
    return {partition: counts for partition, counts in found.items() if counts is not None}


def class_counts(metrics: Mapping[str, object], prefix: str, classes: int) -> NDArray[np.int64] | None:
    """Return hits and examples by class, int64 (2, classes); None if the metrics hold no such counts."""
    lists: list[Any] = [metrics.get(prefix + name) for name in (CLASS_HITS, CLASS_EXAMPLES)]
    if not all(isinstance(some, list) and len(some) == classes for some in lists):
        return None
    if not all(type(n) is int and 0 <= n <= MAX_WEIGHT for some in lists for n in some):
        return None
    return np.array(lists, np.int64)


def per_class(
    names: Sequence[str], counts: Sequence[NDArray[np.int64]], shared: bool = False
) -> OfClasses | None:
    """Return the accuracy on each class, ``sum_i hits_i / sum_i examples_i``; None without counts.

    The accuracy of a class without examples is None. ``examples`` counts distinct examples: those of one
    client if all clients share the same (``shared``), else the sum over clients.
    """
    if not counts:
        return None
    hits, answers = np.sum(counts, axis=0).tolist()
    accuracy = [h / n if n else None for h, n in zip(hits, answers, strict=True)]
    examples = np.max(counts, axis=0)[1].tolist() if shared else answers
    return OfClasses(names=list(names), examples=examples, accuracy=accuracy)
