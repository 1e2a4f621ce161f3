"""Which rows of a dataset each client holds."""

import hashlib
import os
import tempfile
import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, not_allowed
from ..partition_spec import PartitionSpec
from .decoded import DecodedDataset, DecodedSplit

if TYPE_CHECKING:
    from flwr_datasets.partitioner import Partitioner

Rows = NDArray[np.int64]
MIN_DIRICHLET_EXAMPLES = 2  # BatchNorm cannot train on one


@dataclass(frozen=True, eq=False)
class Partitions:
    """Rows by client: ``train`` and ``val`` index the training set, ``test`` the test set.

    ``val_rows`` are all rows kept apart for validation, whichever client's share they are in.
    """

    train: list[Rows]
    val: list[Rows]
    test: list[Rows]
    val_rows: Rows


@lru_cache(maxsize=4)
def partition_dataset(
    dataset: DecodedDataset, text: str, num_clients: int, seed: int, val_fraction: float
) -> Partitions:
    """Divide the training set as ``text`` says (`PartitionSpec.FORMS`), the held-out sets to match.

    Each client's share of the held-out examples of a class is proportional to its training examples of
    that class (``natural``: the examples that carry its id), so that it is tested on what it trains for.
    Kept beside the decoded dataset, so that it is computed once and not by every process.

    Raises
    ------
    UserError
        When a client would have no examples, or the partition does not fit the data.
    """
    key = f"{text} {num_clients} {seed} {val_fraction}"
    path = dataset.folder / f"partition-{hashlib.sha256(key.encode()).hexdigest()[:24]}.npz"
    if not path.exists():
        _save(path, _divide(dataset, PartitionSpec.parse(text), num_clients, seed, val_fraction))
    with np.load(path) as stored:
        shares = {
            name: np.split(stored[name], stored[f"{name}-stops"][:-1]) for name in ("train", "val", "test")
        }
        return Partitions(**shares, val_rows=stored["val_rows"])


def _save(path: Path, partitions: Partitions) -> None:
    arrays: dict[str, Any] = {"val_rows": partitions.val_rows}
    for name in ("train", "val", "test"):
        rows: list[Rows] = getattr(partitions, name)
        arrays[name] = np.concatenate(rows)
        arrays[f"{name}-stops"] = np.cumsum([len(r) for r in rows])
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".npz", delete=False) as file:
        np.savez(file, allow_pickle=False, **arrays)
        file.flush()
        os.fsync(file.fileno())
    os.replace(file.name, path)


def _divide(
    dataset: DecodedDataset, spec: PartitionSpec, num_clients: int, seed: int, val_fraction: float
) -> Partitions:
    order = np.random.default_rng(seed).permutation(len(dataset.train.labels))
    cut = int(val_fraction * len(order))
    val_rows, train_rows = np.sort(order[:cut]), order[cut:]
    if num_clients > len(train_rows):
        raise not_allowed(
            "num-clients", num_clients, f"at most {len(train_rows)}, the training examples there are"
        )
    labels = dataset.train.labels[train_rows]
    test_rows = np.arange(len(dataset.test.labels))
    if spec.kind == "natural":
        ids = _natural_ids(dataset, train_rows, num_clients)
        train, val, test = (
            [rows[_groups(split)[rows] == i] for i in ids]
            for split, rows in (
                (dataset.train, train_rows),
                (dataset.train, val_rows),
                (dataset.test, test_rows),
            )
        )
        return Partitions(train, val, test, val_rows)
    if isinstance(spec.argument, tuple):
        train = [train_rows[rows] for rows in _silos(labels, spec.argument)]
    else:
        train = [train_rows[rows] for rows in _by_flwr_datasets(labels, spec, num_clients, seed)]
    counts = np.array([np.bincount(dataset.train.labels[r], minlength=dataset.spec.classes) for r in train])
    val = [val_rows[r] for r in _in_proportion(dataset.train.labels[val_rows], counts)]
    test = [test_rows[r] for r in _in_proportion(dataset.test.labels, counts)]
    return Partitions(train, val, test, val_rows)


def _groups(split: DecodedSplit) -> NDArray[np.str_]:
    assert split.groups is not None
    return split.groups


def _natural_ids(dataset: DecodedDataset, rows: Rows, num_clients: int) -> NDArray[np.str_]:
    ids = np.unique(_groups(dataset.train)[rows])
    if num_clients > len(ids):
        raise not_allowed("num-clients", num_clients, f"at most {len(ids)}, the natural clients")
    return ids[:num_clients]


def _silos(labels: NDArray[np.int64], silos: tuple[frozenset[int], ...]) -> list[Rows]:
    """Rows by class; a class that several silos name is divided evenly among them."""
    found: list[list[Rows]] = [[] for _ in silos]
    for label in sorted(frozenset().union(*silos)):
        owners = [i for i, classes in enumerate(silos) if label in classes]
        shares = np.array_split(np.flatnonzero(labels == label), len(owners))
        for owner, share in zip(owners, shares, strict=True):
            found[owner].append(share)
    rows = [np.concatenate(parts) for parts in found]
    for classes, share in zip(silos, rows, strict=True):
        if not len(share):
            raise UserError(f"partition: the silo with classes {sorted(classes)} has no examples")
    return rows


def _by_flwr_datasets(
    labels: NDArray[np.int64], spec: PartitionSpec, num_clients: int, seed: int
) -> list[Rows]:
    """Rows as flwr-datasets' partitioner of that name divides them."""
    from datasets import Dataset
    from datasets.utils.logging import disable_progress_bar

    disable_progress_bar()
    partitioner = _partitioner(spec, num_clients, seed)
    partitioner.dataset = Dataset.from_dict({"row": np.arange(len(labels)), "label": labels})
    try:
        with warnings.catch_warnings(action="ignore"):
            shares = [partitioner.load_partition(i)["row"][:] for i in range(num_clients)]
    except ValueError as error:
        reason = str(error).split(". ")[0].splitlines()[0]
        raise UserError(
            f"partition: {spec.kind}:{spec.argument} among {num_clients} clients failed: {reason}"
        ) from error
    rows = [np.asarray(share, dtype=np.int64) for share in shares]
    if empty := [i for i, share in enumerate(rows) if not len(share)]:
        raise UserError(
            f"partition: {spec.kind}:{spec.argument} leaves {len(empty)} clients no examples "
            f"(the first is {empty[0]})"
        )
    return rows


def _partitioner(spec: PartitionSpec, num_clients: int, seed: int) -> "Partitioner":
    from flwr_datasets import partitioner

    match spec.kind, spec.argument:
        case "dirichlet", float(alpha):
            return partitioner.DirichletPartitioner(
                num_clients, "label", alpha, min_partition_size=MIN_DIRICHLET_EXAMPLES, seed=seed
            )
        case "shards", int(per_client):
            return partitioner.ShardPartitioner(
                num_clients, "label", num_shards_per_partition=per_client, seed=seed
            )
        case "pathological", int(classes):
            return partitioner.PathologicalPartitioner(num_clients, "label", classes, seed=seed)
    return partitioner.IidPartitioner(num_clients)


def _in_proportion(labels: NDArray[np.int64], counts: NDArray[np.int64]) -> list[Rows]:
    """Divide each class's rows in proportion to a column of ``counts``, shape (clients, classes)."""
    shares: list[list[Rows]] = [[np.empty(0, np.int64)] for _ in counts]
    for label in range(counts.shape[1]):
        total = counts[:, label].sum()
        if total:
            rows = np.flatnonzero(labels == label)
            stops = np.rint(np.cumsum(counts[:, label]) / total * len(rows)).astype(int)
            for client, share in enumerate(np.split(rows, stops[:-1])):
                shares[client].append(share)
    return [np.concatenate(parts) for parts in shares]
