"""Who holds which rows: all of them, or what is left out is told."""

import tempfile

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbn_flower.core.errors import UserError
from fedbn_flower.core.process_cache import clear_process_caches
from fedbn_flower.data import partition_dataset

from .labelled import CLASSES, divided, made

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


@settings(max_examples=60)
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
            output = str(error)
            assert "\n" not in output
            assert output.startswith(("partition: ", "num-clients: "))
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
    found = parts.left_out(False)
    assert (found == "") == everything
    if nobodys:
        things = "ids" if text.startswith("natural") else "classes"
        assert f"{len(nobodys)} of {len(set(kinds[train_rows]))} {things}, " in found
    local = parts.left_out(True)
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


def test_partitions_depend_on_the_seed_and_nothing_else(digits):
    def rows(text, seed):
        clear_process_caches()
        for stored in digits.folder.glob("partition-*.npz"):
            stored.unlink()
        return np.concatenate(partition_dataset(digits, text, 5, seed, 0.1).train)

    for text in ("iid", "dirichlet:0.5", "shards:2", "pathological:3"):
        first = rows(text, 0)
        np.testing.assert_array_equal(rows(text, 0), first)
        assert not np.array_equal(rows(text, 1), first)
