"""Partition a dataset: the rows of each client."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ...core.errors import not_allowed, os_errors_as_user_errors
from ...core.files import write_atomically
from ...core.process_cache import process_cache
from ..dataset import Dataset, Split
from ..splits import split_at_random
from ..splits.folds import folds_of_clients
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
from .shares import Blocks, Rows, Shares
from .spec import PartitionSpec

FORMAT = 4  # version of the cached files and of the random draws; part of the cache key
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
    test_rows: Rows
    """All test rows, whether or not a client has them."""
    names: tuple[str, ...]
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


class Splits(NamedTuple):
    """How a dataset is divided further than its own training and test set say."""

    grouped: bool = False
    """Whether a group's rows are all at one client."""
    evenly: bool = False
    """Whether validation rows are drawn evenly by outcome and natural client."""
    folds: int = 0
    """In how many parts all examples are divided; the dataset's training set has them, and so has its test
    set."""
    fold: int = 0
    """The part to test on, from 1 on."""


PLAIN = Splits()


@process_cache(maxsize=4)
def partition_dataset(
    dataset: Dataset, text: str, num_clients: int, seed: int, val_fraction: float, splits: Splits = PLAIN
) -> Partitions:
    """Divide the training set as ``text`` says (see `PartitionSpec`), and the held-out sets to match.

    A client's share of the held-out examples of a class is proportional to its training examples of that
    class (``natural``: the examples with its id). So it is tested on what it trains for. The result is
    cached next to the decoded dataset: it is computed once, not by every process.

    With `Splits.grouped` groups are divided, each of which counts as one example of its most frequent class;
    only a ``natural`` partition may give several clients rows of one. With `Splits.folds` the clients are
    given all examples, the same in each fold, and then each client's are divided.

    Raises
    ------
    UserError
        When a client would have no examples, or the partition does not fit the data.
    """
    key = f"{FORMAT} {text} {num_clients} {seed} {val_fraction} {splits}"
    path = dataset.folder / f"partition-{hashlib.sha256(key.encode()).hexdigest()[:24]}.npz"
    if not path.exists():
        spec, rng = PartitionSpec.parse(text), np.random.default_rng(seed)
        division = _Division(dataset, text, num_clients, seed, val_fraction, splits, spec, rng)
        _save(path, division.partitions())
    with np.load(path) as stored:
        shares = {
            name: Shares.cut(stored[name], np.diff(stored[f"{name}-stops"], prepend=0))
            for name in ("train", "val", "test")
        }
        counts = [(count, total) for count, total in stored["unused-counts"].tolist()]
        unused = dict(zip(stored["unused"].tolist(), counts, strict=True))
        names = tuple(stored["names"].tolist())
        val_rows, test_rows = stored["val_rows"], stored["test_rows"]
        return Partitions(**shares, val_rows=val_rows, unused=unused, test_rows=test_rows, names=names)


def _save(path: Path, partitions: Partitions) -> None:
    arrays: dict[str, Any] = {
        "val_rows": partitions.val_rows,
        "test_rows": partitions.test_rows,
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


@dataclass(frozen=True, eq=False)
class _Division:
    """How a dataset is divided: see `partition_dataset`."""

    dataset: Dataset
    text: str
    num_clients: int
    seed: int
    val_fraction: float
    splits: Splits
    spec: PartitionSpec
    rng: Generator

    def partitions(self) -> Partitions:
        """Divide the training set, and the held-out sets to match."""
        if self.splits.folds:
            return self._in_folds()
        whole, tested = self.dataset.train, self.dataset.test
        val_rows, train_rows = self._validation(np.arange(len(whole)), self.splits.grouped)
        test_rows = np.arange(len(tested))
        ids, train = self._among_clients(train_rows)
        val, test = (
            split_by_id(_groups(split), rows, ids)
            if self.spec.kind == "natural"
            else self._to_match(train, split, rows)
            for split, rows in ((whole, val_rows), (tested, test_rows))
        )
        unused = self._unused_of(train, train_rows) | {
            "validation examples": _unused(val, val_rows),
            "test examples": _unused(test, test_rows),
        }
        return Partitions(train, val, test, val_rows, unused, test_rows, tuple(ids))

    def _in_folds(self) -> Partitions:
        """Divide all examples among the clients, and then each client's among the splits."""
        whole, folds = self.dataset.train, self.splits.folds
        every = np.arange(len(whole))
        _, rows = split_at_random(self.rng, len(every), 0.0, whole.units)
        ids, shares = self._among_clients(rows)
        fold = folds_of_clients(whole.columns["y"], whole.units, shares, folds, self.seed)
        tested = fold == self.splits.fold - 1
        val_rows, train_rows = self._validation(every[~tested], self.splits.evenly)
        parts = train_rows, val_rows, np.flatnonzero(tested)
        train, val, test = (shares.within(part) for part in parts)
        unused = self._unused_of(shares, every)
        return Partitions(train, val, test, val_rows, unused, parts[2], tuple(ids))

    def _validation(self, rows: Rows, evenly: bool) -> tuple[Rows, Rows]:
        """Return the rows to validate on, sorted, and those to train on, in random order."""
        held_out, rest = self.dataset.train.held_out(self.rng, rows, self.val_fraction, evenly)
        return np.sort(held_out), rest

    def _among_clients(self, rows: Rows) -> tuple[list[str], Shares]:
        """Return the clients' ids, of natural ones, and their shares of some rows of the training set."""
        split, spec = self.dataset.train, self.spec
        blocks = self._blocks(split, rows)
        if self.num_clients > len(blocks):
            what = "groups" if self.splits.grouped else "training examples"
            raise not_allowed("num-clients", self.num_clients, f"at most {len(blocks)}, the number of {what}")
        if spec.kind == "natural":
            ids = draw_ids(_groups(split)[rows], self.num_clients, self.rng)
            return ids, split_by_id(_groups(split), rows, ids)
        labels = blocks.usual(self._labels(split))
        spec.check_classes(self.dataset.spec.outputs)
        if isinstance(spec.argument, NamedPartitioner):
            values = _groups(split)[blocks.first] if spec.column else labels
            shares = Shares.of(spec.argument.divide(values, self.num_clients, self.seed))
        else:
            shares = self._by_label(labels)
        return [], blocks.expanded(shares)

    def _by_label(self, labels: NDArray[np.int64]) -> Shares:
        match self.spec.kind, self.spec.argument:
            case "dirichlet", float(alpha):
                return dirichlet(labels, self.num_clients, alpha, self.seed)
            case "shards", int(per_client):
                return shards(labels, self.num_clients, per_client, self.rng)
            case "pathological", int(per_client):
                drawn = draw_class_sets(labels, self.num_clients, per_client, self.rng)
                return split_by_class(labels, drawn)
            case "silos", tuple(class_sets):
                return split_by_class(labels, class_sets)
            case "silos", None:
                return split_by_class(labels, even_class_sets(labels, self.num_clients))
        return split_evenly(len(labels), self.num_clients)

    def _to_match(self, train: Shares, split: Split, rows: Rows) -> Shares:
        """Divide held-out rows of a split in proportion to the clients' training examples of each class."""
        counts = train.counts(self._labels(self.dataset.train), self.dataset.spec.outputs)
        blocks = self._blocks(split, rows)
        return blocks.expanded(split_in_proportion(blocks.usual(self._labels(split)), counts))

    def _blocks(self, split: Split, rows: Rows) -> Blocks:
        return Blocks.of(rows, split.units if self.splits.grouped else None)

    def _labels(self, split: Split) -> NDArray[np.int64]:
        """Return class numbers; zeros if the data have no classes and the partition needs none."""
        if self.dataset.has_classes:
            return split.columns["y"]
        if self.spec.needs_classes:
            masks = self.dataset.has_masks
            why = "an example has a mask, not one class" if masks else "the data have no classes"
            raise not_allowed("partition", self.text, f"'iid' or 'natural:COLUMN': {why}")
        return np.zeros(len(split), np.int64)

    def _unused_of(self, train: Shares, rows: Rows) -> dict[str, tuple[int, int]]:
        """Return how many ids or classes, and training examples, no client has, each with how many there
        are."""
        whole = self.dataset.train
        if self.spec.kind == "natural":
            things, kinds = "ids", np.unique(_groups(whole), return_inverse=True)[1]
        else:
            things, kinds = "classes", self._labels(whole)
        present = len(np.unique(kinds[rows]))
        return {
            things: (present - len(np.unique(kinds[train.rows])), present),
            "training examples": _unused(train, rows),
        }


def _groups(split: Split) -> NDArray[np.str_]:
    assert split.groups is not None
    return split.groups


def _unused(shares: Shares, rows: Rows) -> tuple[int, int]:
    return len(rows) - int(shares.sizes.sum()), len(rows)
