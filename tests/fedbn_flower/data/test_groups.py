"""Groups, such as patients: no group is on two sides of a split, in whatever way examples are divided."""

import tempfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image

from fedbn_flower import UserError, simulate
from fedbn_flower.core.process_cache import clear_process_caches
from fedbn_flower.data import partition_dataset
from fedbn_flower.data.partition.partition import Splits
from fedbn_flower.data.splits import held_out_groups, split_at_random
from fedbn_flower.data.splits.groups import strata_of, usual
from fedbn_flower.job.group_sides import sides_of
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.job.tasks import rows_of, task_of
from fedbn_flower.job.what_is_learnt import what_is_learnt
from fedbn_flower.server.federation import Federation

from ..privacy.test_units import write
from .labelled import CLASSES, made

THIRD = {"folds": 3, "fold": 2}
MADE = ("iid", "dirichlet:2", "shards:2", "natural:writer", "silos:0-1,2-4")


@pytest.fixture
def patients(tmp_path):
    """60 patients with 1 to 5 rows, in no order, at one of three sites each."""
    of_rows = np.repeat(np.arange(60), 1 + np.arange(60) % 5)
    return write(tmp_path / "patients.csv", np.random.default_rng(0).permutation(of_rows).tolist())


@pytest.fixture
def grouped(configured, patients):
    keys = {"dataset": patients, "label_column": "outcome", "columns": "age,sex=f|m", "num_clients": 3}
    keys |= {"group_column": "patient", "model": "mlp-bn", "rounds": 1}
    return lambda **further: configured(**{**keys, "partition": "iid", **further})


def groups_of(inputs, sides):
    """The groups of training, validation and test rows."""
    train, test = inputs.dataset.train.units, inputs.dataset.test.units
    return [set(units[rows].tolist()) for units, rows in zip((train, train, test), sides, strict=True)]


def are_apart(sides):
    return sum(map(len, sides)) == len(set().union(*sides))


# ---- laws -----------------------------------------------------------------------------------------

SIZES = st.lists(st.integers(1, 6), min_size=12, max_size=40)


@settings(max_examples=30)
@given(
    text=st.sampled_from(MADE),
    sizes=SIZES,
    seed=st.integers(0, 1000),
    val_fraction=st.sampled_from([0.0, 0.2, 0.5]),
    folds=st.sampled_from([0, 2, 3]),
)
def test_no_group_is_on_two_sides_or_at_two_clients(text, sizes, seed, val_fraction, folds):
    """Of data with a test set of other groups, or in folds; clients of a natural partition may share some."""
    rng = np.random.default_rng(seed)
    units = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    labels, writers = rng.integers(0, CLASSES, len(units)), [f"w{i}" for i in rng.integers(0, 2, len(units))]
    tested = np.zeros(len(units), bool) if folds else np.isin(units, np.arange(0, len(sizes), 4))
    with tempfile.TemporaryDirectory() as folder:
        parts = ([a[rows] for a in (labels, np.array(writers))] for rows in (~tested, tested))
        (y, ids), (y_test, test_ids) = parts
        data = made(folder, y, y_test, ids, test_ids)
        train = replace(data.train, units=units[~tested])
        test = train if folds else replace(data.test, units=units[tested])
        data = replace(data, train=train, test=test)
        try:
            shares = partition_dataset(
                data, text, 2, seed, val_fraction, Splits(True, True, folds, min(folds, 1))
            )
        except UserError as error:
            assume(not str(error).startswith(("partition: ", "folds: ")))
            raise
        finally:
            clear_process_caches()
    of_train, of_test = data.train.units, data.test.units
    sides = [set(of_train[shares.train.rows]), set(of_train[shares.val_rows]), set(of_test[shares.test_rows])]
    assert are_apart(sides)
    for split, units_of in (("train", of_train), ("val", of_train), ("test", of_test)):
        if text.startswith("natural"):
            continue
        assert are_apart([set(units_of[rows].tolist()) for rows in getattr(shares, split)])
    if folds:
        rows = np.concatenate([shares.train.rows, shares.val.rows, shares.test.rows])
        assert len(np.unique(rows)) == len(rows)


@settings(max_examples=50)
@given(sizes=SIZES, seed=st.integers(0, 1000), share=st.floats(0, 0.9))
def test_a_share_is_of_whole_groups_and_even_over_strata(sizes, seed, share):
    """Of n groups in strata it takes int(share n), and of each stratum its part up to one."""
    rng = np.random.default_rng(seed)
    units = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    strata = rng.integers(0, 3, len(sizes))[units]
    taken, rest = split_at_random(np.random.default_rng(seed), len(units), share, units, strata)
    assert sorted([*taken, *rest]) == [*range(len(units))]
    assert not set(units[taken]) & set(units[rest])
    number = int(share * len(sizes))
    assert len(set(units[taken])) == number
    for stratum in range(3):
        groups = set(units[strata == stratum].tolist())
        even = number * len(groups) / len(sizes)
        assert abs(len(groups & set(units[taken].tolist())) - even) < 1 + 1e-9


def test_a_fifth_has_each_class_and_site_in_its_share():
    """100 groups of two rows: of each of four sites 25, of which five have the rare class."""
    units = np.repeat(np.arange(100), 2)
    sites, rare = units % 4, (units // 4) < 5
    _, test = held_out_groups(rare.astype(int), units, sites)
    assert len(test) == 40
    for site in range(4):
        assert (sites[test] == site).sum() == 10
        assert rare[test][sites[test] == site].sum() == 2


def test_strata_are_classes_labels_or_fifths_of_numbers():
    assert strata_of(np.array([3, 1, 3])).tolist() == [1, 0, 1]
    assert strata_of(np.array([[0.0, 1], [1, 1], [0, 1]], np.float32)).tolist() == [0, 1, 0]
    assert np.bincount(strata_of(np.arange(100.0)[:, None])).tolist() == [20] * 5
    assert not strata_of(np.random.default_rng(0).normal(size=(9, 2))).any()
    assert not strata_of(np.ones((4, 2, 2), np.uint8)).any()
    assert usual(np.array([2, 1, 2, 5, 4]), np.array([0, 0, 0, 1, 1])).tolist() == [2, 4]


# ---- tables ---------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("partition", "folds"),
    [("iid", {}), ("dirichlet:2", THIRD), ("natural:site", {}), ("natural:site", THIRD)],
)
def test_no_patient_of_a_table_is_on_both_sides(grouped, partition, folds):
    config = grouped(partition=partition, val_fraction=0.25, **folds)
    inputs = inputs_of(config)
    sides = groups_of(inputs, sides_of(inputs))
    assert are_apart(sides)
    assert len(set().union(*sides)) == 60
    units, shares = inputs.dataset.train.units, inputs.partitions
    for client in range(3):
        rows = [shares.train[client], shares.val[client], shares.test[client]]
        assert are_apart(groups_of(inputs, rows))
    assert are_apart([set(units[rows].tolist()) for rows in shares.train])
    notes = [str(note) for note in what_is_learnt(inputs)]
    assert "examples: groups: 60 values of 'patient', none on both sides" in notes
    assert "left out: 'patient', by whose values rows are kept together" in notes
    assert not [line for line in Federation(config).warnings if "leaks?" in line]
    assert len(inputs.protected) == 3
    assert inputs.protected.tolist() == shares.train.sizes.tolist()  # of rows: nothing is private


@pytest.mark.parametrize("folds", [{}, {"folds": 4, "fold": 1}])
def test_no_patient_of_a_site_is_on_both_sides(grouped, patients, tmp_path, folds):
    config = grouped(dataset="shape:3:2", val_fraction=0.25, label_column="outcome=0|1", **folds)
    inputs = inputs_of(config, patients, str(tmp_path / "cache"))
    rows = rows_of(inputs, 1)
    sides = groups_of(inputs, [rows[split] for split in ("train", "val", "test")])
    assert are_apart(sides)
    assert len(set().union(*sides)) == 60
    assert all(sides)
    notes = [str(note) for note in what_is_learnt(inputs, 1)]
    assert "examples: groups: 60 values of 'patient', none on both sides" in notes


@pytest.fixture
def moved(tmp_path):
    """40 patients with three rows each; patient 0 moved from site 0 to 2."""
    path = write(tmp_path / "moved.csv", np.repeat(np.arange(40), 3).tolist(), site=lambda p: p % 3)
    frame = pd.read_csv(path)
    frame.loc[(frame.patient == "p0") & ~frame.duplicated("patient"), "site"] = 2
    frame.to_csv(path, index=False)
    return path


def test_patients_at_several_sites_are_said(grouped, moved):
    inputs = inputs_of(grouped(dataset=moved, partition="natural:site"))
    (line,) = [note.text for note in what_is_learnt(inputs) if note.text.startswith("groups")]
    assert line.endswith("40 values of 'patient', none on both sides; 1 of them with rows at several clients")
    inputs = inputs_of(grouped(dataset=moved, partition="iid"))
    assert "several" not in str(what_is_learnt(inputs))


@pytest.mark.slow
def test_patients_of_a_site_left_out_may_be_known_at_others(grouped, moved):
    """Patient 0 is trained on if one of its sites is left out, and not if site 1 is."""
    pytest.importorskip("fedbn_flower.inspection")
    for site, known in ((0, True), (1, False), (2, True)):
        config = grouped(dataset=moved, partition="natural:site", leave_one_site_out=True, left_out=site)
        federation = Federation(config)
        (line,) = [note.text for note in federation.learnt if note.text.startswith("groups")]
        assert line.startswith(f"groups: 40 values of 'patient', {1 if known else 'none'} on both sides")
        said = f"left-out: leaks? with {site} left out, 1 of 40 groups by 'patient' "
        warned = [line for line in federation.warnings if line.startswith(said)]
        assert len(warned) == known


def test_a_test_set_that_is_given_may_have_groups_of_the_training_set(grouped, patients, tmp_path):
    pytest.importorskip("fedbn_flower.inspection")
    frame = pd.read_csv(patients)
    (tmp_path / "given").mkdir()
    frame[:100].to_csv(tmp_path / "given" / "train.csv", index=False)
    frame[100:].to_csv(tmp_path / "given" / "test.csv", index=False)
    both = {*frame[:100].patient} & {*frame[100:].patient}
    federation = Federation(grouped(dataset=str(tmp_path / "given")))
    assert [line for line in federation.warnings if "leaks? " in line] == [
        f"dataset: leaks? {len(both)} of 60 groups by 'patient' have examples to train on and to test on: "
        "what is measured on them is no measure of new ones; leave them out of one of the two"
    ]
    assert f"groups: 60 values of 'patient', {len(both)} on both sides" in str(federation.learnt)


def test_runs_with_the_key_have_other_names_in_the_cache(grouped, patients):
    from fedbn_flower.data import Request

    names = [str(Request("t", **keys)) for keys in ({}, {"unit_column": "p"}, {"unit_key": "group-column"})]
    assert len({*names}) == 3
    protected = {"dp": "example", "dp_noise": 1.0, "dp_clip": 1.0, "label_column": "outcome=0|1"}
    both = grouped(dp_unit="patient", dp_scale="age=50:20", dp_delta=1e-3, batch_size=8, **protected)
    inputs = inputs_of(both)
    assert inputs.protected.sum() == len(set(inputs.dataset.train.units.tolist())) < len(inputs.dataset.train)


# ---- pictures -------------------------------------------------------------------------------------


def draw(folder, names):
    rng = np.random.default_rng(0)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (4, 4), np.uint8)).save(folder / name)
    return str(folder)


SCANS = [(f"P{patient}", scan, patient % 2) for patient in range(10) for scan in range(3)]
PLACES = {
    "folders": "{label}/{patient}/{scan}.png",
    "masks": "images/{patient}_{scan}.png",
    "table": "images/{patient}_{scan}.png",
    "hub": "train/{patient}_{scan}.png",
}
NAMED = r"name=(P\d+)"


@pytest.fixture
def pictures(configured, tmp_path):
    """A configuration of three pictures of each of ten patients, in a layout."""

    def drawn(layout, **keys):
        paths = [PLACES[layout].format(patient=p, scan=scan, label="ab"[label]) for p, scan, label in SCANS]
        folder = draw(tmp_path / "d", paths)
        if layout == "masks":
            draw(tmp_path / "d", [path.replace("images", "masks") for path in paths])
            for path in (tmp_path / "d" / "masks").iterdir():
                Image.fromarray(np.arange(16, dtype=np.uint8).reshape(4, 4) % 2).save(path)
            keys |= {"model": "unet", "problem": "segmentation"}
        rows = [f"{p}_{scan}.png,{label},{p},{2018 + scan}" for p, scan, label in SCANS]
        for table, header in {"table": "labels.csv,file", "hub": "train/metadata.csv,file_name"}.items():
            if table == layout:
                name, _, first = header.partition(",")
                lines = [f"{first},label,patient,year", *rows]
                (tmp_path / "d" / name).write_text("\n".join(lines) + "\n")
        return configured(dataset=folder, partition="iid", num_clients=2, label_column="auto", **keys)

    return drawn


@pytest.mark.parametrize(
    ("layout", "by"),
    [("folders", NAMED), ("masks", NAMED), ("table", NAMED), ("table", "patient"), ("hub", "patient")],
)
def test_groups_of_pictures_are_found_in_their_paths_or_a_column(pictures, layout, by):
    inputs = inputs_of(pictures(layout, group_column=by, val_fraction=0.2))
    sides = groups_of(inputs, sides_of(inputs))
    assert are_apart(sides)
    assert len(set().union(*sides)) == 10
    assert len(inputs.dataset.train) + len(inputs.dataset.test) == len(SCANS)
    said = "groups: 10 values of 'patient'" if by == "patient" else rf"groups: 10 by {by!r}"
    assert f"{said}, none on both sides" in [note.text for note in what_is_learnt(inputs)]


def test_pictures_are_divided_by_a_column_too(pictures):
    later = inputs_of(pictures("table", split_by="year<2020"))
    assert (len(later.dataset.train), len(later.dataset.test)) == (20, 10)


def test_groups_that_pictures_of_the_hub_do_not_have(pictures):
    for by, line in {
        "patent": "unknown name 'patent'",
        "name=(P)": ".* of a column: pictures have no paths$",
    }.items():
        with pytest.raises(UserError, match=rf"^group-column: {line}"):
            Federation(pictures("hub", group_column=by))


@pytest.mark.parametrize("folds", [{}, {"folds": 2, "fold": 1}])
def test_groups_stay_together_in_every_domain(configured, tmp_path, folds):
    names = [f"{'ab'[p % 2]}/P{p}_{scan}.png" for p in range(10) for scan in range(3)]
    keys = {"dataset": draw(tmp_path / "d", names), "partition": "iid", "num_clients": 2, "rounds": 1}
    keys |= {"feature_shift": "none+inverted", "group_column": r"name=(P\d+)_", "model": "linear"}
    inputs = inputs_of(configured(**keys, **folds))
    assert are_apart(groups_of(inputs, sides_of(inputs)))
    rows = rows_of(inputs, 1)
    task = task_of(inputs, 1)
    seen = 255 - (inputs.dataset.test if folds else inputs.dataset.train).columns["x"][rows["train"][:2]]
    ((x, _),) = task.train.load([np.arange(2)])
    np.testing.assert_allclose(x.numpy() * 255, seen, atol=1e-4)


# ---- arrays ---------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
X, Y, G = RNG.normal(size=(90, 4)), RNG.integers(0, 2, 90), RNG.integers(0, 30, 90)


def test_arrays_may_come_with_their_groups(run, tmp_path):
    run(
        data=(X[:60], Y[:60], X[60:], Y[60:]), groups=(G[:60], G[60:]), partition="iid", run_dir="a", rounds=1
    )
    data = {name: (X[rows], Y[rows]) for name, rows in (("n", slice(45)), ("s", slice(45, 90)))}
    by_client = {"s": [f"p{one}" for one in G[45:]], "n": [f"p{one}" for one in G[:45]]}
    run(data=data, groups={k: np.array(v) for k, v in by_client.items()}, run_dir="b", rounds=1)
    text = (tmp_path / "b" / "config.json").read_text()
    assert f"groups: {len({*G})} values of 'group', none on both sides" in text
    both = len({*G[:60]} & {*G[60:]})
    text = (tmp_path / "a" / "config.json").read_text()
    assert f"groups: {len({*G})} values of 'group', {both} on both sides" in text


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"groups": G}, r"^groups: an object of type ndarray is not allowed; expected a pair of arrays"),
        ({"groups": (G, G)}, r"^groups: of 'x' they are int64 \(90,\); expected 60 words or whole numbers"),
        ({"groups": (G[:60] / 2, G[60:])}, r"^groups: of 'x' they are float64 \(60,\); expected 60 words"),
        ({"data": None, "groups": G}, r"^groups: given without data; group_column names"),
        ({"groups": None, "group_column": "p"}, "^group-column: 'p' .* expected none, or 'group'"),
        ({"data": [(X, Y)], "test": [(X, Y)], "groups": [G]}, r"^groups: given with test; expected no test"),
        ({"data": {"a": (X, Y)}, "groups": {"b": G}}, r"^groups: of 'a' they are float64 \(0,\)"),
    ],
)
def test_groups_of_arrays_that_cannot_be(cache_dir, keys, line):
    given = {"data": (X[:60], Y[:60], X[60:], Y[60:]), "partition": "iid", **keys}
    with pytest.raises(UserError, match=line):
        simulate(**given, cache_dir=cache_dir, backend="inline", progress=False)


# ---- what cannot be -------------------------------------------------------------------------------


OTHER = {"columns": "auto", "label_column": "auto"}


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"group_column": "patent"}, "^group-column: unknown name 'patent'"),
        ({"group_column": "outcome"}, "^group-column: 'outcome' is not allowed; expected another column"),
        ({"columns": "age,patient"}, "^columns: .* expected columns other than 'patient', the group-column$"),
        ({"group_column": "name=P"}, "^group-column: 'name=P' .* regular expression that has one group; it "),
        ({"group_column": "name=(P){99999999999}"}, "^group-column: .*the repetition number is too large"),
        ({"group_column": "name=(P"}, r"^group-column: 'name=\(P' .* has one group \(missing \), unterm"),
        ({"group_column": "name=(P)"}, r"^group-column: 'name=\(P\)' .* the name of a column: the data are"),
        ({"num_clients": 50}, r"^num-clients: 50 .* at most \d+, the number of groups$"),
        ({"dp_unit": "site", "dp": "example"}, "^group-column: 'patient' .* expected 'site', the dp-unit"),
        ({"dataset": "digits", **OTHER}, "^group-column: .* none: the data are no table"),
        ({"dataset": "synthetic:1,1", **OTHER}, "^group-column: .* none: the"),
    ],
)
def test_groups_that_cannot_be(grouped, keys, line):
    with pytest.raises(UserError, match=line) as error:
        Federation(grouped(**keys))
    assert "\n" not in str(error.value)


def test_too_few_groups_and_names_without_one(configured, grouped, tmp_path):
    path = write(tmp_path / "few.csv", [0, 1, 2, 3] * 10)
    with pytest.raises(UserError, match=r"^group-column: '4 groups' is not allowed; expected at least 5"):
        Federation(grouped(dataset=path))
    folder = draw(tmp_path / "d", [f"{label}/P{i}.png" for i in range(8) for label in "ab"] + ["a/x.png"])
    keys = {"dataset": folder, "partition": "iid", "num_clients": 2}
    with pytest.raises(UserError, match=r"finds no group in 'a/x.png' \(1 of 17 pictures\)$"):
        Federation(configured(**keys, group_column=r"name=P(\d+)"))
    with pytest.raises(UserError, match=r"^group-column: 'patient' is not allowed; expected name=PATTERN"):
        Federation(configured(**keys, group_column="patient"))
