import numpy as np
import pytest

from fedbn_flower.data.partition import division
from fedbn_flower.data.partition.shares import Shares


def plain(shares):
    return [share.tolist() for share in shares]


def test_shares_are_the_sequence_of_the_clients_rows():
    shares = Shares.of([np.array([4, 1]), np.array([], np.int64), np.array([7])])
    assert plain(shares) == [[4, 1], [], [7]] == plain(shares[:3])
    assert (shares[-1].tolist(), shares.sizes.tolist(), len(shares)) == ([7], [2, 0, 1], 3)
    assert plain(shares.among(np.arange(10) * 10)) == [[40, 10], [], [70]]
    with pytest.raises(IndexError):
        shares[3]


def test_counts_are_by_client_and_class_also_where_clients_have_the_same_rows():
    labels = np.array([0, 2, 2, 1])
    shares = Shares.of([np.array([0]), np.array([1, 2]), np.array([3])])
    assert shares.counts(labels, 4).tolist() == [[1, 0, 0, 0], [0, 0, 2, 0], [0, 1, 0, 0]]
    pooled = shares.with_all_but({1}, np.array([0, 3]))
    assert plain(pooled) == [[0, 3], [1, 2], [0, 3]]
    assert (pooled.union().tolist(), pooled.union({1}).tolist()) == ([0, 1, 2, 3], [0, 3])
    assert pooled.counts(labels, 3).tolist() == [[1, 1, 0], [0, 0, 2], [1, 1, 0]]


def test_division_is_that_of_a_loop_over_clients():
    """By the plain definitions, with numpy's `array_split` for what is even."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        count, classes, clients = rng.integers(60, 200), rng.integers(2, 6), rng.integers(1, 12)
        labels = rng.integers(classes, size=count)
        rows_of = [np.flatnonzero(labels == label) for label in range(classes)]
        assert plain(division.split_evenly(count, clients)) == plain(
            np.array_split(np.arange(count), clients)
        )

        seed = int(rng.integers(100))
        shares = division.shards(labels, clients, 2, np.random.default_rng(seed))
        pieces = np.array_split(np.argsort(labels, kind="stable"), 2 * clients)
        dealt = np.random.default_rng(seed).permutation(2 * clients).reshape(clients, 2)
        assert plain(shares) == [np.concatenate([pieces[i] for i in hand]).tolist() for hand in dealt]

        owned = tuple(
            frozenset(rng.choice(classes, 1 + i % 2, replace=False).tolist()) for i in range(clients)
        )
        parts = [[] for _ in owned]
        for label in range(classes):
            owners = [i for i, some in enumerate(owned) if label in some]
            for owner, part in zip(owners, np.array_split(rows_of[label], len(owners) or 1), strict=False):
                parts[owner] += part.tolist()
        assert plain(division.split_by_class(labels, owned)) == parts

        counts = rng.integers(0, 5, (clients, classes))
        parts = [[] for _ in counts]
        for label in np.flatnonzero(counts.sum(0)):
            share = np.cumsum(counts[:, label]) / counts[:, label].sum()
            for i, part in enumerate(
                np.split(rows_of[label], np.rint(share * len(rows_of[label])).astype(int)[:-1])
            ):
                parts[i] += part.tolist()
        assert plain(division.split_in_proportion(labels, counts)) == parts

        groups = rng.choice(["a", "b", "w2", "w10", "z"], count)
        rows, ids = rng.permutation(count)[:50], ["w2", "w10", "a"]
        assert plain(division.split_by_id(groups, rows, ids)) == [
            [row for row in rows if groups[row] == one] for one in ids
        ]
        assert plain(division.split_by_id(groups, rows[:0], ids)) == [[], [], []]
