"""Each kind of partition: what it gives to whom."""

import numpy as np
import pytest
from datasets import Dataset
from flwr_datasets.partitioner import DirichletPartitioner

from fedbn_flower.core.errors import UserError
from fedbn_flower.data import partition_dataset
from fedbn_flower.data.partition.division import dirichlet
from fedbn_flower.data.partition.spec import PartitionSpec

from .labelled import divided, made


def test_silos_hold_exactly_their_classes(digits):
    """A class of several clients is divided evenly among them."""
    shared = partition_dataset(digits, "silos:0-1,1-2", 2, 0, 0.0)
    one, other = divided(digits.train.columns["y"], shared.train)[:, 1]
    assert abs(one - other) <= 1 < one
    parts = partition_dataset(digits, "silos:0-4,5-9", 2, 0, 0.0)
    for rows, classes in zip(parts.train, (range(5), range(5, 10)), strict=True):
        assert sorted(rows) == list(np.flatnonzero(np.isin(digits.train.columns["y"], classes)))
    for rows, classes in zip(parts.test, (range(5), range(5, 10)), strict=True):
        assert sorted(rows) == list(np.flatnonzero(np.isin(digits.test.columns["y"], classes)))


@pytest.mark.parametrize("clients", [2, 3, 4])
def test_silos_of_the_classes_that_occur(tmp_path, clients):
    """Of classes 0, 1, 3, 4 the first clients have one more where they cannot have as many."""
    data = made(tmp_path, train=[4, 0, 1, 3, 3, 0], test=[0, 1, 3, 4])
    parts = partition_dataset(data, "silos", clients, 0, 0.0)
    expected = {2: [[0, 1], [3, 4]], 3: [[0, 1], [3], [4]], 4: [[0], [1], [3], [4]]}[clients]
    for split, shares in ((data.train, parts.train), (data.test, parts.test)):
        assert [sorted(set(split.columns["y"][rows].tolist())) for rows in shares] == expected
    assert parts.left_out(True) == ""


def test_a_client_is_tested_on_the_classes_it_trains_on_in_proportion(digits):
    parts = partition_dataset(digits, "dirichlet:0.3", 5, 1, 0.0)
    train, test = (
        divided(digits.train.columns["y"], parts.train),
        divided(digits.test.columns["y"], parts.test),
    )
    np.testing.assert_allclose(test, train / train.sum(0) * test.sum(0), atol=1.01)


def test_shards_are_consecutive_in_the_rows_sorted_by_label(tmp_path):
    """23 rows in six shards, sorted by label 0000 0000 0111 1111 1122 222, of which each client has one."""
    data = made(tmp_path, train=[0, 1] * 9 + [2] * 5, test=[0])
    parts = partition_dataset(data, "shards:1", 6, 0, 0.0)
    shards = [[0, 0, 3], [0, 2, 2], [0, 4, 0], [1, 3, 0], [4, 0, 0], [4, 0, 0]]
    assert sorted(divided(data.train.columns["y"], parts.train)[:, :3].tolist()) == shards


@pytest.mark.parametrize(
    ("text", "train", "test", "of_train", "of_test"),
    [
        ("silos:0,1-2", [0, 0, 1, 2, 3, 3, 3], [0, 2, 3, 4], "1 of 4 classes, 3 of 7", ", 2 of 4"),
        ("iid", [0, 1] * 4, [0, 1, 4, 4, 4], "", "3 of 5"),
        ("pathological:2", [0, 1, 2, 3, 4] * 6, [*range(5)], "1 of 5 classes, 6 of 30", ", 1 of 5"),
    ],
)
def test_what_two_clients_do_not_have_is_said(tmp_path, text, train, test, of_train, of_test):
    parts = partition_dataset(made(tmp_path, train=train, test=test), text, 2, 0, 0.0)
    trained = f"{of_train} training examples" if of_train else ""
    assert parts.left_out(False) == (trained and f"{trained}, which no client has")
    assert parts.left_out(True) == f"{trained}{of_test} test examples, which no client has"


def test_natural_clients_are_in_natural_order(tmp_path):
    ids = ["w10", "w9", "w100", "w1"]
    data = made(tmp_path, [0] * 4, [0], ids, ["w1"])
    parts = partition_dataset(data, "natural:writer", 4, 0, 0.0)
    assert [ids[rows[0]] for rows in parts.train] == ["w1", "w9", "w10", "w100"]


def test_fewer_clients_than_ids_are_drawn_and_reported(tmp_path):
    writers = [f"w{i % 3}" for i in range(30)]
    data = made(tmp_path, [0] * 30, [0] * 6, writers, writers[:6])
    drawn = set()
    for seed in range(20):
        parts = partition_dataset(data, "natural:writer", 2, seed, 0.0)
        ids = [writers[rows[0]] for rows in parts.train]
        assert ids == sorted(ids)
        drawn.add(tuple(ids))
    assert drawn == {("w0", "w1"), ("w0", "w2"), ("w1", "w2")}
    output = "1 of 3 ids, 10 of 30 training examples"
    hint = ", which no client has; num-clients 3 has them all"
    assert parts.left_out(False) == f"{output}{hint}"
    assert parts.left_out(True) == f"{output}, 2 of 6 test examples{hint}"


@pytest.mark.filterwarnings("ignore:The specified min_partition_size")
@pytest.mark.parametrize("alpha", [0.1, 5.0])
def test_dirichlet_is_that_of_flower_with_this_alpha(alpha):
    """At alpha 0.1 it draws until each client has two examples."""
    labels = np.arange(120) % 3
    reference = DirichletPartitioner(
        num_partitions=4, partition_by="y", alpha=alpha, min_partition_size=2, seed=3
    )
    reference.dataset = Dataset.from_dict({"row": range(120), "y": labels})
    expected = [sorted(reference.load_partition(i)["row"]) for i in range(4)]
    assert [sorted(rows.tolist()) for rows in dirichlet(labels, 4, alpha, 3)] == expected
    assert PartitionSpec.parse(f"dirichlet:{alpha}").argument == alpha


def test_two_examples_are_enough_for_a_client():
    assert [len(rows) for rows in dirichlet(np.zeros(4, np.int64), 2, 1e6, 0)] == [2, 2]


@pytest.mark.parametrize(
    ("text", "clients", "message"),
    [
        ("silos:0-4,15-19", 2, "partition: class 19 in silos is not allowed; expected classes 0-9"),
        ("silos", 11, "num-clients: 11 .* at most 10, the number of classes, with silos, or"),
        ("iid", 2000, "num-clients: 2000 is not allowed; expected at most 1437"),
        ("dirichlet:0.001", 50, "each draw of dirichlet:0.001 among 50 clients leaves a client with fewer"),
        ("shards:3", 500, "'shards:3' is not allowed; expected at most shards:2 among 500 clients, for 1437"),
        ("pathological:11", 2, "'pathological:11' is not allowed; expected at most pathological:10"),
        ("pathological:5", 400, "400 clients gives class 0 to 200 of them, but it has 1.. training examples"),
    ],
)
def test_a_partition_that_does_not_fit_is_refused(digits, text, clients, message):
    with pytest.raises(UserError, match=message) as caught:
        partition_dataset(digits, text, clients, 0, 0.0)
    assert "\n" not in str(caught.value)


def test_every_form_is_described():
    forms = PartitionSpec.FORMS.replace(" or ", ", ").split(", ")
    assert all(f"``{form}``" in PartitionSpec.__doc__ for form in forms)
