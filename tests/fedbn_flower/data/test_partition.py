"""Who holds which rows: all of them, or what is left out is told."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbn_flower.data import Dataset, Request, load_dataset, partition_dataset
from fedbn_flower.data.dataset import Split
from fedbn_flower.data.partition_spec import PartitionSpec
from fedbn_flower.errors import UserError
from fedbn_flower.models import InputSpec

CLASSES = 5


@pytest.fixture
def digits(cache_dir):
    return load_dataset(Request("digits"), cache_dir)


def made(folder, train, test, train_ids=None, test_ids=None):
    """A dataset with these labels, and ids for a natural partition."""

    def split(labels, ids):
        return Split({"y": np.array(labels, np.int64)}, None if ids is None else np.array(ids))

    dataset = Dataset.without_examples(InputSpec((1,), CLASSES))
    return replace(dataset, train=split(train, train_ids), test=split(test, test_ids), folder=Path(folder))


def divided(labels, rows):
    """How many of each class each client has, shape (clients, classes)."""
    return np.array([np.bincount(labels[r], minlength=CLASSES) for r in rows])


# ---- what holds for every partition -----------------------------------------------------------------

LABELS = st.builds(
    lambda count, seed: np.random.default_rng(seed).integers(0, CLASSES, count).tolist(),
    st.integers(1, 80),
    st.integers(0, 1000),
)
SPECS = st.one_of(
    st.just("iid"),
    st.floats(0.05, 50).map(lambda alpha: f"dirichlet:{alpha}"),
    st.integers(1, 4).map(lambda count: f"shards:{count}"),
    st.integers(1, CLASSES + 1).map(lambda count: f"pathological:{count}"),
    st.just("natural:writer"),
    st.sampled_from(["silos:0,1", "silos:0-1,1-2", "silos:0-2,3-4", "silos:0+4,1-3,2"]),
)


@settings(max_examples=300, deadline=None)
@given(
    text=SPECS,
    num_clients=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
    val_fraction=st.sampled_from([0.0, 0.2, 0.5]),
    train=LABELS,
    test=LABELS,
    ids=st.integers(1, 12),
)
def test_no_row_is_given_twice_and_all_are_given_or_counted(
    text, num_clients, seed, val_fraction, train, test, ids
):
    if text.startswith("silos"):
        num_clients = text.count(",") + 1
    writers = [[f"w{i % ids}" for i in range(len(labels))] for labels in (train, test)]
    with tempfile.TemporaryDirectory() as folder:
        dataset = made(folder, train, test, *writers)
        try:
            parts = partition_dataset(dataset, text, num_clients, seed, val_fraction)
        except UserError as error:
            told = str(error)
            assert "\n" not in told
            assert told.startswith(("partition: ", "num-clients: "))
            there = len(train) - int(val_fraction * len(train))
            assert text != "iid" or num_clients > there
            assert not text.startswith("shards") or num_clients * int(text[7:]) > there
            assert not text.startswith("natural") or num_clients > min(ids, there) or val_fraction
            return

    # No row twice, none of another set.
    train_rows = np.setdiff1d(np.arange(len(train)), parts.val_rows)
    assert len(parts.val_rows) == int(val_fraction * len(train))
    for shares, rows, name in (
        (parts.train, train_rows, "training examples"),
        (parts.val, parts.val_rows, "validation examples"),
        (parts.test, np.arange(len(test)), "test examples"),
    ):
        assert len(shares) == num_clients
        given_away = np.concatenate(shares)
        assert len(set(given_away)) == len(given_away)
        assert set(given_away) <= set(rows)
        assert parts.unused[name] == (len(rows) - len(given_away), len(rows))
    assert min(len(rows) for rows in parts.train) > 0

    # What is left out is told.
    labels, used = dataset.train.columns["y"], np.concatenate(parts.train)
    everything = len(used) == len(train_rows)
    kinds = np.array(writers[0]) if text.startswith("natural") else labels
    nobodys = set(kinds[train_rows]) - set(kinds[used])
    assert (not nobodys) == everything
    found = parts.left_out(text, "global")
    assert (found == "") == everything
    if nobodys:
        things = "ids" if text.startswith("natural") else "classes"
        assert f" leaves out {len(nobodys)} of {len(set(kinds[train_rows]))} {things}, " in found
    local = parts.left_out(text, "local")
    whole = all(count == 0 for count, _ in parts.unused.values())
    assert (local == "") == whole

    # And nothing is left out where it need not be.
    if not text.startswith(("natural", "silos", "pathological")):
        assert everything
    if text.startswith("pathological"):
        per_client = int(text[13:])
        owned = divided(labels, parts.train) > 0
        assert (owned.sum(1) == per_client).all()
        owners = owned.sum(0)[np.unique(labels[train_rows])]
        assert owners.max() - owners.min() <= 1
        assert everything == (num_clients * per_client >= len(owners))


@pytest.mark.parametrize(
    ("text", "clients"),
    [("iid", 7), ("dirichlet:0.5", 5), ("shards:2", 10), ("pathological:3", 8), ("silos:0-4,5-9", 2)],
)
@pytest.mark.parametrize("val_fraction", [0.0, 0.2])
def test_the_digits_are_used_whole(digits, text, clients, val_fraction):
    parts = partition_dataset(digits, text, clients, 0, val_fraction)
    assert sorted(np.concatenate([*parts.train, *parts.val])) == list(range(1437))
    assert len(parts.val_rows) == int(val_fraction * 1437)
    assert sorted(np.concatenate(parts.test)) == list(range(360))
    assert parts.left_out(text, "local") == ""


def test_partitions_depend_on_the_seed_and_nothing_else(digits):
    def rows(text, seed):
        partition_dataset.cache_clear()
        for stored in digits.folder.glob("partition-*.npz"):
            stored.unlink()
        return np.concatenate(partition_dataset(digits, text, 5, seed, 0.1).train)

    for text in ("iid", "dirichlet:0.5", "shards:2", "pathological:3"):
        np.testing.assert_array_equal(rows(text, 0), rows(text, 0))
        assert not np.array_equal(rows(text, 0), rows(text, 1))


def test_a_client_is_tested_on_the_classes_it_trains_on_in_proportion(digits):
    parts = partition_dataset(digits, "dirichlet:0.3", 5, 1, 0.0)
    for label in range(10):
        train = np.array([(digits.train.columns["y"][r] == label).sum() for r in parts.train])
        test = np.array([(digits.test.columns["y"][r] == label).sum() for r in parts.test])
        assert test.sum() == (digits.test.columns["y"] == label).sum()
        np.testing.assert_allclose(test, train / train.sum() * test.sum(), atol=1.01)


# ---- each kind --------------------------------------------------------------------------------------


def test_silos_hold_exactly_their_classes(digits):
    parts = partition_dataset(digits, "silos:0-4,5-9", 2, 0, 0.0)
    for rows, classes in zip(parts.train, (range(5), range(5, 10)), strict=True):
        assert sorted(rows) == list(np.flatnonzero(np.isin(digits.train.columns["y"], classes)))
    for rows, classes in zip(parts.test, (range(5), range(5, 10)), strict=True):
        assert sorted(rows) == list(np.flatnonzero(np.isin(digits.test.columns["y"], classes)))


def test_silos_that_overlap_divide_the_class(digits):
    parts = partition_dataset(digits, "silos:0-1,1-2", 2, 0, 0.0)
    shared = [(digits.train.columns["y"][rows] == 1).sum() for rows in parts.train]
    assert sum(shared) == (digits.train.columns["y"] == 1).sum()
    assert abs(shared[0] - shared[1]) <= 1


def test_silos_that_leave_classes_out_say_so(tmp_path):
    data = made(tmp_path, train=[0, 0, 1, 2, 3, 3, 3], test=[0, 2, 3, 4])
    parts = partition_dataset(data, "silos:0,1-2", 2, 0, 0.0)
    told = "partition: 'silos:0,1-2' among 2 clients leaves out 1 of 4 classes, 3 of 7 training examples"
    assert parts.left_out("silos:0,1-2", "global") == told
    assert parts.left_out("silos:0,1-2", "local") == f"{told}, 2 of 4 test examples"


def test_test_examples_of_a_class_that_nobody_trains_on_are_told(tmp_path):
    data = made(tmp_path, train=[0, 1] * 4, test=[0, 1, 4, 4, 4])
    parts = partition_dataset(data, "iid", 2, 0, 0.0)
    assert parts.left_out("iid", "global") == ""
    assert (
        parts.left_out("iid", "local") == "partition: 'iid' among 2 clients leaves out 3 of 5 test examples"
    )


def test_shards_are_consecutive_in_the_rows_sorted_by_label(tmp_path):
    """23 rows in 3 x 2 shards: five of 4 rows and one of 3, where equal shards would drop 5 rows."""
    data = made(tmp_path, train=[0] * 9 + [1] * 9 + [2] * 5, test=[0])
    parts = partition_dataset(data, "shards:2", 3, 0, 0.0)
    assert sorted(len(rows) for rows in parts.train) in ([7, 8, 8], [8, 8, 7])
    # Sorted by label the shards hold 0000 0000 0111 1111 1122 222.
    shards = [{0: 4}, {0: 4}, {0: 1, 1: 3}, {1: 4}, {1: 2, 2: 2}, {2: 3}]
    counted = divided(data.train.columns["y"], parts.train)[:, :3].tolist()
    pairs = [
        [shards[i].get(c, 0) + shards[j].get(c, 0) for c in range(3)] for i in range(6) for j in range(i)
    ]
    assert all(client in pairs for client in counted)


def test_shards_are_dealt_anew_by_the_seed(digits):
    dealt = [partition_dataset(digits, "shards:2", 10, seed, 0.0).train for seed in (0, 1)]
    classes = [[frozenset(digits.train.columns["y"][rows]) for rows in parts] for parts in dealt]
    assert classes[0] != classes[1]
    assert max(len(c) for c in classes[0]) <= 4


def test_pathological_uses_every_class_and_divides_it_evenly(digits):
    """Four clients of three classes: two of the ten classes have two owners, eight have one."""
    dealt = set()
    for seed in range(20):
        parts = partition_dataset(digits, "pathological:3", 4, seed, 0.0)
        counts = np.array([np.bincount(digits.train.columns["y"][r], minlength=10) for r in parts.train])
        assert ((counts > 0).sum(1) == 3).all()
        assert sorted((counts > 0).sum(0)) == [1] * 8 + [2] * 2
        for shares in counts.T:
            assert np.ptp(shares[shares > 0]) <= 1
        dealt.add(tuple(map(tuple, counts > 0)))
    assert len(dealt) == 20


def test_pathological_with_too_few_clients_for_all_classes_says_so(tmp_path):
    data = made(tmp_path, train=[0, 1, 2, 3, 4] * 6, test=[0, 1, 2, 3, 4])
    parts = partition_dataset(data, "pathological:2", 2, 0, 0.0)
    assert (
        parts.left_out("pathological:2", "local")
        == "partition: 'pathological:2' among 2 clients leaves out 1 of 5 classes, "
        "6 of 30 training examples, 1 of 5 test examples"
    )


def test_natural_clients(tmp_path):
    writers = [f"w{i % 3}" for i in range(30)]
    data = made(tmp_path, [0] * 30, [0] * 30, writers, writers)
    parts = partition_dataset(data, "natural:writer", 3, 0, 0.0)
    for i in range(3):
        assert sorted(parts.train[i]) == sorted(parts.test[i]) == list(range(i, 30, 3))
    assert parts.left_out("natural:writer", "local") == ""
    with pytest.raises(UserError, match="num-clients: 4 is not allowed; expected at most 3"):
        partition_dataset(data, "natural:writer", 4, 0, 0.0)


def test_natural_clients_are_in_natural_order(tmp_path):
    ids = ["w10", "w9", "w100", "w1"]
    data = made(tmp_path, [0] * 4, [0], ids, ["w1"])
    parts = partition_dataset(data, "natural:writer", 4, 0, 0.0)
    assert [ids[rows[0]] for rows in parts.train] == ["w1", "w9", "w10", "w100"]


def test_fewer_clients_than_ids_are_drawn_and_told(tmp_path):
    writers = [f"w{i % 3}" for i in range(30)]
    data = made(tmp_path, [0] * 30, [0] * 6, writers, writers[:6])
    drawn = set()
    for seed in range(20):
        parts = partition_dataset(data, "natural:writer", 2, seed, 0.0)
        ids = [writers[rows[0]] for rows in parts.train]
        assert ids == sorted(ids)
        drawn.add(tuple(ids))
    assert drawn == {("w0", "w1"), ("w0", "w2"), ("w1", "w2")}
    told = "partition: 'natural:writer' among 2 clients leaves out 1 of 3 ids, 10 of 30 training examples"
    assert parts.left_out("natural:writer", "global") == told
    assert parts.left_out("natural:writer", "local") == f"{told}, 2 of 6 test examples"


def test_dirichlet_draws_each_classs_shares_over_the_clients(tmp_path):
    """Shares of a class come from Dir(alpha, ..., alpha): by its formulas their mean is 1/n and their
    variance (n - 1) / (n^2 (n alpha + 1)); sizes are not balanced."""
    alpha, num_clients, per_class = 0.5, 4, 200
    data = made(tmp_path, list(range(CLASSES)) * per_class, [0])
    shares = np.concatenate(
        [
            divided(
                data.train.columns["y"],
                partition_dataset(data, f"dirichlet:{alpha}", num_clients, s, 0.0).train,
            )
            / per_class
            for s in range(120)
        ]
    ).T.reshape(-1, num_clients)
    np.testing.assert_allclose(shares.sum(1), 1)
    variance = (num_clients - 1) / (num_clients**2 * (num_clients * alpha + 1))
    np.testing.assert_allclose(shares.mean(0), 1 / num_clients, atol=0.03)
    np.testing.assert_allclose(shares.var(), variance, rtol=0.1)


@pytest.mark.parametrize(
    ("text", "clients", "message"),
    [
        (
            "silos:0-4,15-19",
            2,
            "partition: class 19 in silos is not allowed; expected classes 0-9, those of the dataset",
        ),
        ("iid", 2000, "num-clients: 2000 is not allowed; expected at most 1437"),
        ("dirichlet:0.001", 500, "partition: dirichlet:0.001 among 500 clients failed"),
        (
            "shards:3",
            500,
            "partition: 'shards:3' is not allowed; expected at most shards:2 among 500 clients, for 1437",
        ),
        (
            "pathological:11",
            2,
            "partition: 'pathological:11' is not allowed; expected at most pathological:10",
        ),
        (
            "pathological:5",
            400,
            "400 clients lets 200 of them share class 0, which has 1.. training examples",
        ),
    ],
)
def test_a_partition_that_does_not_fit_is_refused(digits, text, clients, message):
    with pytest.raises(UserError, match=message) as caught:
        partition_dataset(digits, text, clients, 0, 0.0)
    assert "\n" not in str(caught.value)


def test_every_form_is_described():
    forms = PartitionSpec.FORMS.replace(" or ", ", ").split(", ")
    assert all(f"``{form}``" in PartitionSpec.__doc__ for form in forms)
