"""Divide rows or ids among clients: a function for each kind of `PartitionSpec`."""

import re
import warnings
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ...core.errors import UserError, not_allowed
from .shares import Rows, Shares, even_sizes, joined

ClassSets = tuple[frozenset[int], ...]
MIN_DIRICHLET_EXAMPLES = 2  # BatchNorm cannot train on a single example


def split_evenly(count: int, num_clients: int) -> Shares:
    """Split rows 0..count-1 into one nearly even part per client."""
    return Shares.cut(np.arange(count), even_sizes(count, num_clients))


def dirichlet(labels: NDArray[np.int64], num_clients: int, alpha: float, seed: int) -> Shares:
    """Divide each class by shares drawn from Dir(alpha) over the clients, with flwr-datasets' partitioner.

    Raises
    ------
    UserError
        When each of eleven draws leaves a client with fewer than two examples.
    """
    from datasets import Dataset
    from datasets.utils.logging import disable_progress_bar
    from flwr_datasets.partitioner import DirichletPartitioner

    disable_progress_bar()
    partitioner = DirichletPartitioner(
        num_clients, "label", alpha, min_partition_size=MIN_DIRICHLET_EXAMPLES, seed=seed
    )
    partitioner.dataset = Dataset.from_dict({"row": np.arange(len(labels)), "label": labels})
    try:
        with warnings.catch_warnings(action="ignore"):
            shares = [partitioner.load_partition(i)["row"][:] for i in range(num_clients)]
    except ValueError as error:  # all of its draws failed
        raise UserError(
            f"partition: each draw of dirichlet:{alpha} among {num_clients} clients leaves a client with "
            f"fewer than {MIN_DIRICHLET_EXAMPLES} examples; expected fewer clients or a larger alpha"
        ) from error
    return Shares.of([np.asarray(share, dtype=np.int64) for share in shares])


def shards(labels: NDArray[np.int64], num_clients: int, per_client: int, rng: Generator) -> Shares:
    """Sort rows by label, cut them into nearly even shards, and give ``per_client`` shards to each client.

    Raises
    ------
    UserError
        When there are more shards than rows.
    """
    count = num_clients * per_client
    if count > len(labels):
        most = len(labels) // num_clients
        allowed = f"at most shards:{most} among {num_clients} clients, for {len(labels)} training examples"
        raise not_allowed("partition", f"shards:{per_client}", allowed)
    sizes = even_sizes(len(labels), count)
    starts = np.cumsum(sizes) - sizes
    assignment = rng.permutation(count).reshape(num_clients, per_client)
    return joined(np.argsort(labels, kind="stable"), starts[assignment], sizes[assignment])


def draw_class_sets(
    labels: NDArray[np.int64], num_clients: int, per_client: int, rng: Generator
) -> ClassSets:
    """Draw ``per_client`` classes for each client: those with the fewest owners so far, ties at random.

    So every class has an owner if there are enough draws, and the numbers of owners differ by at most one.

    Raises
    ------
    UserError
        When there are too few classes, or a class has fewer examples than owners.
    """
    classes, examples = np.unique(labels, return_counts=True)
    if per_client > len(classes):
        allowed = f"at most pathological:{len(classes)}, the number of classes in the training set"
        raise not_allowed("partition", f"pathological:{per_client}", allowed)
    owners = np.zeros(len(classes), np.int64)
    drawn = []
    for _ in range(num_clients):
        fewest = np.lexsort((rng.permutation(len(classes)), owners))[:per_client]
        owners[fewest] += 1
        drawn.append(frozenset(classes[fewest].tolist()))
    for label, count, sharing in zip(classes, examples, owners, strict=True):
        if count < sharing:
            raise UserError(
                f"partition: pathological:{per_client} among {num_clients} clients gives class {label} to "
                f"{sharing} of them, but it has {count} training examples"
            )
    return tuple(drawn)


def even_class_sets(labels: NDArray[np.int64], num_clients: int) -> ClassSets:
    """Split the classes that occur, in order, into one nearly even set per client.

    Raises
    ------
    UserError
        When there are fewer classes than clients.
    """
    classes = np.unique(labels)
    if num_clients > len(classes):
        allowed = (
            f"at most {len(classes)}, the number of classes, with silos, or another partition, such as iid"
        )
        raise not_allowed("num-clients", num_clients, allowed)
    return tuple(frozenset(part.tolist()) for part in np.array_split(classes, num_clients))


def split_by_class(labels: NDArray[np.int64], class_sets: ClassSets) -> Shares:
    """Give each client the rows of its classes; a class of several clients is divided evenly among them.

    Raises
    ------
    UserError
        When a client would have no examples.
    """
    clients = np.repeat(np.arange(len(class_sets)), list(map(len, class_sets)))
    classes = np.array([label for owned in class_sets for label in sorted(owned)], np.int64)
    order = np.argsort(classes, kind="stable")  # by class, the owners of each in their order
    used, first, owners = np.unique(classes[order], return_index=True, return_counts=True)
    kept = np.flatnonzero(np.isin(labels, used))
    rows = kept[np.argsort(labels[kept], kind="stable")]
    examples = np.searchsorted(labels[rows], used, "right") - np.searchsorted(labels[rows], used)
    rank = np.arange(len(order)) - np.repeat(first, owners)
    sizes = np.empty(len(order), np.int64)
    sizes[order] = np.repeat(examples // owners, owners) + (rank < np.repeat(examples % owners, owners))
    starts = np.empty(len(order), np.int64)
    starts[order] = np.cumsum(sizes[order]) - sizes[order]
    pieces = joined(rows, starts[:, None], sizes[:, None])
    shares = Shares.cut(pieces.rows, np.bincount(clients, sizes, len(class_sets)).astype(np.int64))
    if not shares.sizes.all():
        empty = class_sets[int(np.argmin(shares.sizes))]
        raise UserError(f"partition: the silo with classes {sorted(empty)} has no examples")
    return shares


def draw_ids(groups: NDArray[np.str_], num_clients: int, rng: Generator) -> list[str]:
    """Draw one id per client and return them in natural order (``w2`` before ``w10``).

    Raises
    ------
    UserError
        When there are fewer ids than clients.
    """
    ids = sorted(np.unique(groups).tolist(), key=_natural_key)
    if num_clients > len(ids):
        divided = ", or partition 'iid', which divides its examples" if len(ids) == 1 else ""
        most = f"at most {len(ids)}, the number of natural clients{divided}"
        raise not_allowed("num-clients", num_clients, most)
    return [ids[i] for i in sorted(rng.choice(len(ids), num_clients, replace=False))]


def _natural_key(text: str) -> list[Any]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", text)]


def split_by_id(groups: NDArray[np.str_], rows: Rows, ids: list[str]) -> Shares:
    """Give each client those of ``rows`` that have its id, in their order."""
    known, ranks = np.unique(ids, return_inverse=True)
    found = np.searchsorted(known, groups[rows]).clip(max=len(known) - 1)
    client = np.where(known[found] == groups[rows], np.argsort(ranks)[found], len(ids))
    order = np.argsort(client, kind="stable")[: np.count_nonzero(client < len(ids))]
    return Shares.cut(rows[order], np.bincount(client, minlength=len(ids) + 1)[: len(ids)])


def split_in_proportion(labels: NDArray[np.int64], counts: NDArray[np.int64]) -> Shares:
    """Divide the rows of each class in proportion to its column of ``counts``, shape (clients, classes).

    Classes that no client has are left out.
    """
    totals = counts.sum(0)
    kept = np.flatnonzero(totals[labels])
    rows = kept[np.argsort(labels[kept], kind="stable")]
    examples = np.bincount(labels[rows], minlength=len(totals))
    stops = np.rint(np.cumsum(counts, 0) / np.maximum(totals, 1) * examples).astype(np.int64)
    sizes = np.diff(stops, axis=0, prepend=0)
    return joined(rows, np.cumsum(examples) - examples + stops - sizes, sizes)
