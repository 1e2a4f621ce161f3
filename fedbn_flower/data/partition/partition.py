"""Partition a dataset: the rows of each client."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ...core.errors import not_allowed, os_errors_as_user_errors
from ...core.files import write_atomically
from ...core.process_cache import process_cache
from ..dataset import Dataset, Split
from ..splits import split_at_random
from .division import (
    dirichlet,
    draw_class_sets,
    draw_ids,
    even_class_sets,
    shards,
    split_by_class,
    split_by_id,
    split_evenly,
    split_in_proportion,
)
from .flwr_partitioners import NamedPartitioner
from .shares import Rows, Shares
from .spec import PartitionSpec

FORMAT = 3  # version of the cached files and of the random draws; part of the cache key
HELD_OUT = frozenset({"validation examples", "test examples"})


@dataclass(frozen=True, eq=False)
class Partitions:
    """The rows of each client: ``train`` and ``val`` index the training set, ``test`` the test set.

    ``val_rows`` are all validation rows, whether or not a client has them. ``unused`` maps ids or classes,
    and the examples of each set, to two counts: how many of them no client has, and how many there are.
    """

    train: Shares
    val: Shares
    test: Shares
    val_rows: Rows
    unused: Mapping[str, tuple[int, int]]
    names: tuple[str, ...] = ()
    """The id of each client, for a ``natural`` partition."""

    def left_out(self, evaluates_locally: bool) -> str:
        """Return what this partition gives to no client, in words; empty if nothing is left out.

        Held-out examples are counted only if clients are evaluated on their own shares.
        """
        counts = [
            f"{count} of {total} {things}"
            for things, (count, total) in self.unused.items()
            if count and (evaluates_locally or things not in HELD_OUT)
        ]
        lacking, ids = self.unused.get("ids", (0, 0))
        hint = f"; num-clients {ids} has them all" if lacking else ""
        return f"{', '.join(counts)}, which no client has{hint}" if counts else ""


@process_cache(maxsize=4)
def partition_dataset(
    dataset: Dataset, text: str, num_clients: int, seed: int, val_fraction: float
) -> Partitions:
    """Divide the training set as ``text`` says (see `PartitionSpec`), and the held-out sets to match.

    A client's share of the held-out examples of a class is proportional to its training examples of that
    class (``natural``: the examples with its id). So it is tested on what it trains for. The result is
    cached next to the decoded dataset: it is computed once, not by every process.

    Raises
    ------
    UserError
        When a client would have no examples, or the partition does not fit the data.
    """
    key = f"{FORMAT} {text} {num_clients} {seed} {val_fraction}"
    path = dataset.folder / f"partition-{hashlib.sha256(key.encode()).hexdigest()[:24]}.npz"
    if not path.exists():
        _save(path, _divide(dataset, text, num_clients, seed, val_fraction))
    with np.load(path) as stored:
        shares = {
            name: Shares.cut(stored[name], np.diff(stored[f"{name}-stops"], prepend=0))
            for name in ("train", "val", "test")
        }
        counts = [(count, total) for count, total in stored["unused-counts"].tolist()]
        unused = dict(zip(stored["unused"].tolist(), counts, strict=True))
        names = tuple(stored["names"].tolist())
        return Partitions(**shares, val_rows=stored["val_rows"], unused=unused, names=names)


def _save(path: Path, partitions: Partitions) -> None:
    arrays: dict[str, Any] = {
        "val_rows": partitions.val_rows,
        "unused": np.array(list(partitions.unused)),
        "names": np.array(partitions.names, np.str_),
        "unused-counts": np.array(list(partitions.unused.values())),
    }
    for name in ("train", "val", "test"):
        shares: Shares = getattr(partitions, name)
        arrays[name], arrays[f"{name}-stops"] = shares.rows, shares.stops
    content = BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    with os_errors_as_user_errors("cache-dir", f"write {path.parent}"):
        write_atomically(path, content.getvalue())


def _divide(dataset: Dataset, text: str, num_clients: int, seed: int, val_fraction: float) -> Partitions:
    spec = PartitionSpec.parse(text)
    rng = np.random.default_rng(seed)
    val_rows, train_rows = split_at_random(rng, len(dataset.train), val_fraction, dataset.train.units)
    val_rows = np.sort(val_rows)
    if num_clients > len(train_rows):
        raise not_allowed(
            "num-clients", num_clients, f"at most {len(train_rows)}, the number of training examples"
        )
    test_rows = np.arange(len(dataset.test))
    ids: list[str] = []
    if spec.kind == "natural":
        things, kinds = "ids", np.unique(_groups(dataset.train), return_inverse=True)[1]
        ids = draw_ids(_groups(dataset.train)[train_rows], num_clients, rng)
        train, val, test = (
            split_by_id(_groups(split), rows, ids)
            for split, rows in (
                (dataset.train, train_rows),
                (dataset.train, val_rows),
                (dataset.test, test_rows),
            )
        )
    else:
        things, labels = "classes", _labels(dataset, dataset.train, spec, text)
        kinds = labels
        spec.check_classes(dataset.spec.outputs)
        if isinstance(spec.argument, NamedPartitioner):
            values = _groups(dataset.train) if spec.column else labels
            shares = Shares.of(spec.argument.divide(values[train_rows], num_clients, seed))
        else:
            shares = _by_label(labels[train_rows], spec, num_clients, seed, rng)
        train = shares.among(train_rows)
        counts = train.counts(labels, dataset.spec.outputs)
        val = split_in_proportion(labels[val_rows], counts).among(val_rows)
        test = split_in_proportion(_labels(dataset, dataset.test, spec, text), counts)
    present = len(np.unique(kinds[train_rows]))
    unused = {
        things: (present - len(np.unique(kinds[train.rows])), present),
        "training examples": _unused(train, train_rows),
        "validation examples": _unused(val, val_rows),
        "test examples": _unused(test, test_rows),
    }
    return Partitions(train, val, test, val_rows, unused, tuple(ids))


def _groups(split: Split) -> NDArray[np.str_]:
    assert split.groups is not None
    return split.groups


def _labels(dataset: Dataset, split: Split, spec: PartitionSpec, text: str) -> NDArray[np.int64]:
    """Return class numbers; zeros if the data have no classes and the partition needs none."""
    if dataset.has_classes:
        return split.columns["y"]
    if spec.needs_classes:
        why = "an example has a mask, not one class" if dataset.has_masks else "the data have no classes"
        raise not_allowed("partition", text, f"'iid' or 'natural:COLUMN': {why}")
    return np.zeros(len(split), np.int64)


def _by_label(
    labels: NDArray[np.int64], spec: PartitionSpec, num_clients: int, seed: int, rng: Generator
) -> Shares:
    match spec.kind, spec.argument:
        case "dirichlet", float(alpha):
            return dirichlet(labels, num_clients, alpha, seed)
        case "shards", int(per_client):
            return shards(labels, num_clients, per_client, rng)
        case "pathological", int(per_client):
            return split_by_class(labels, draw_class_sets(labels, num_clients, per_client, rng))
        case "silos", tuple(class_sets):
            return split_by_class(labels, class_sets)
        case "silos", None:
            return split_by_class(labels, even_class_sets(labels, num_clients))
    return split_evenly(len(labels), num_clients)


def _unused(shares: Shares, rows: Rows) -> tuple[int, int]:
    return len(rows) - int(shares.sizes.sum()), len(rows)
