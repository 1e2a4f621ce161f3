"""flwr-datasets' partitioners by name."""

from dataclasses import replace

import numpy as np
import pytest
from datasets import Dataset as Table
from flwr_datasets import partitioner

from fedbn_flower.core.errors import UserError
from fedbn_flower.core.process_cache import clear_process_caches
from fedbn_flower.data.partition.partition import partition_dataset
from fedbn_flower.data.partition.spec import PartitionSpec
from fedbn_flower.models import InputSpec

from .labelled import made

LABELS = np.repeat([0, 1, 3], [60, 40, 20])
IDS = [f"w{i % 4}" for i in range(120)]


@pytest.fixture
def data(tmp_path):
    return made(tmp_path, LABELS, np.repeat([0, 1, 3], [30, 20, 10]), IDS, IDS[:60])


def divide(data, text, clients, seed=0, val_fraction=0.0):
    return partition_dataset(data, text, clients, seed, val_fraction)


def test_sizes_are_those_requested_and_the_rest_is_reported(data):
    parts = divide(data, "SizePartitioner:partition_sizes=[50, 30, 10]", 3)
    assert [len(rows) for rows in parts.train] == [50, 30, 10]
    assert parts.unused["training examples"] == (30, 120)
    parts = divide(data, "LinearPartitioner", 4)
    assert [len(rows) for rows in parts.train] == [12, 24, 36, 48]


def test_the_rows_are_those_of_the_class_itself(data):
    """The training rows, in the order in which they are dealt, divided by flwr-datasets alone."""
    parts = divide(data, "InnerDirichletPartitioner:partition_sizes=[40,40,40],alpha=0.5", 3, seed=7)
    order = np.random.default_rng(7).permutation(120)
    alone = partitioner.InnerDirichletPartitioner([40, 40, 40], "label", 0.5, seed=7)
    compact = np.searchsorted([0, 1, 3], LABELS[order])
    alone.dataset = Table.from_dict({"row": order, "label": compact})
    for i, rows in enumerate(parts.train):
        assert list(rows) == alone.load_partition(i)["row"][:]
    again = divide(data, "InnerDirichletPartitioner:partition_sizes=[40,40,40],alpha=0.5", 3, seed=8)
    assert [list(r) for r in again.train] != [list(r) for r in parts.train]


def test_held_out_examples_follow_the_classes_of_the_training_ones(data):
    text = "PathologicalPartitioner:num_classes_per_partition=1,class_assignment_mode='deterministic'"
    parts = divide(data, text, 3, val_fraction=0.25)
    for train, val, test in zip(parts.train, parts.val, parts.test, strict=True):
        (label,) = set(LABELS[train])
        assert set(LABELS[val]) == {label}
        assert list(test) == list(np.flatnonzero(data.test.columns["y"] == label))


def test_a_column_may_be_named_and_data_without_classes_have_only_that(data):
    grouped = "GroupedNaturalIdPartitioner:partition_by='writer',group_size=2"
    assert PartitionSpec.parse(grouped).column == "writer"
    for given in (data, replace(data, spec=InputSpec((1,), 1, "numbers"))):
        parts = divide(given, grouped, 2)
        writers = [{IDS[row] for row in rows} for rows in parts.train]
        assert [len(ids) for ids in writers] == [2, 2]
        assert writers[0].isdisjoint(writers[1])
        clear_process_caches()
        next(data.folder.glob("partition-*.npz")).unlink()
    with pytest.raises(UserError, match="the data have no classes"):
        divide(given, "ShardPartitioner:num_shards_per_partition=2", 2)
    assert len(divide(given, "IidPartitioner", 3).train) == 3


def test_numbers_in_a_column_are_numbers(tmp_path):
    """Sorted by the number, not by its text: 10 is more than 9."""
    data = made(tmp_path, [0] * 12, [0], [str(i) for i in range(12)], ["0"])
    parts = divide(data, "ContinuousPartitioner:partition_by='age',strictness=1.0", 2)
    assert [sorted(rows) for rows in parts.train] == [list(range(6)), list(range(6, 12))]


LITERALS = "expected DirichletPartitioner:KEY=VALUE,... with Python literals as values"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ShardPartitoner", "partition: unknown name 'ShardPartitoner' .did you mean 'ShardPartitioner'"),
        ("VerticalEvenPartitioner", "partition: unknown name 'VerticalEvenPartitioner'"),
        ("Partitioner", "partition: unknown name 'Partitioner'"),
        ("DirichletPartitioner", "expected DirichletPartitioner with alpha=..."),
        ("DirichletPartitioner:alfa=1", "DirichletPartitioner: unknown name 'alfa' .did you mean 'alpha'"),
        ("DirichletPartitioner:0.5", LITERALS),
        ("DirichletPartitioner:alpha=(", LITERALS),
        ("DirichletPartitioner:alpha=x", LITERALS),
        ("IidPartitioner:**{}", "expected IidPartitioner:KEY=VALUE,... with Python literals as values"),
        ("DirichletPartitioner:alpha=-1", "DirichletPartitioner among 2 clients failed: Alpha values"),
        ("SizePartitioner:partition_sizes=[1,2,3]", "num-clients: 2 .* expected 3, the number of parti"),
        ("SizePartitioner:partition_sizes=[1,500]", "SizePartitioner among 2 clients failed: .*"),
        ("SizePartitioner:partition_sizes=[1,0]", "SizePartitioner among 2 clients failed: All"),
        ("SizePartitioner:partition_sizes=[]", "^(partition|num-clients): .*SizePartitioner"),
        ("IidPartitioner:num_partitions=3", "num-clients: 2 is not allowed; expected 3"),
    ],
)
def test_what_does_not_fit_is_one_line(data, text, message):
    with pytest.raises(UserError, match=message) as caught:
        divide(data, text, 2)
    assert "\n" not in str(caught.value)
