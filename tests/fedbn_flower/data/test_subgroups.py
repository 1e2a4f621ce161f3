"""``--subgroups``: of which subgroup each row is, and that nothing else of the data changes by it."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fedbn_flower import UserError
from fedbn_flower.core.process_cache import clear_process_caches
from fedbn_flower.data.splits.subgroups import NONE, Attribute, attributes_of, given_subgroups
from fedbn_flower.job.checks.unused_keys import FLOWER, SIMULATION, unused_keys
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.job.what_is_learnt import what_is_learnt
from fedbn_flower.server.federation import Federation

AGES = [20 + 2 * i for i in range(40)]
SEX = ["f", "m", "", "f"]
BY_TIME = {"split_by": "seen<2021-01-01"}
ALL = "sex,age>=65,seen<2020-01-01,smoker==y"


@pytest.fixture
def table(tmp_path):
    """Row i: sex f, m, none, f in turn; age 20 + 2 i; seen in one of 2018 to 2021; smokes if i % 3 is 0."""
    rows = [
        f"{i},{'ab'[i % 2]},{SEX[i % 4]},{AGES[i]},{2018 + i % 4}-06-01,{'yn'[i % 3 > 0]},{i % 5 % 2}"
        for i in range(40)
    ]
    path = tmp_path / "visits.csv"
    path.write_text("x,site,sex,age,seen,smoker,outcome\n" + "\n".join(rows) + "\n")
    return str(path)


@pytest.fixture
def asked(configured, table):
    pytest.importorskip("fedbn_flower.study")
    keys = {"dataset": table, "partition": "natural:site", "num_clients": 2, "model": "mlp-bn", "rounds": 1}
    return lambda text, **more: configured(**{**keys, "columns": "x", **more}, subgroups=text)


@pytest.fixture
def of(asked):
    return lambda text, **more: inputs_of(asked(text, **more))


def test_each_row_is_of_the_subgroup_that_its_value_says(of):
    data = of(ALL).dataset
    for split in (data.train, data.test):
        row = split.columns["x"][:, 0].astype(int)
        assert list(split.subgroups) == ALL.split(",")
        assert split.subgroups["sex"].tolist() == [SEX[i % 4] for i in row]
        assert split.subgroups["age>=65"].tolist() == ["age>=65" if AGES[i] >= 65 else "age<65" for i in row]
        early = ["seen<2020-01-01" if i % 4 < 2 else "seen>=2020-01-01" for i in row]
        assert split.subgroups["seen<2020-01-01"].tolist() == early
        smokes = ["smoker!=y" if i % 3 else "smoker==y" for i in row]
        assert split.subgroups["smoker==y"].tolist() == smokes
    assert len(data.train) + len(data.test) == 40


@given(
    values=st.lists(st.one_of(st.none(), st.integers(-9, 9)), min_size=1, max_size=30),
    sign=st.sampled_from(["<", "<=", ">", ">=", "=="]),
    bound=st.integers(-9, 9),
)
def test_a_comparison_is_pythons_and_a_missing_value_is_of_neither_side(values, sign, bound):
    (attribute,) = attributes_of(f"a b {sign} {bound}")
    assert attribute == Attribute("a b", sign, str(bound))
    column = pd.Series(values, dtype=float)
    found = attribute.of(column, column.astype(str).to_numpy(str))
    holds = {"<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__, "==": int.__eq__}[sign]
    expected = [
        NONE if v is None else f"a b{sign}{bound}" if holds(v, bound) else attribute.otherwise for v in values
    ]
    assert found.tolist() == expected


@pytest.mark.slow
def test_whether_they_are_inputs_does_not_change(of):
    """Nor do the rows of a split, nor the digest by which runs on the same data are known."""
    for columns, learnt_from in (("auto", "an input"), ("x", "no input"), ("x,age", "an input")):
        plain, divided = (of(text, columns=columns, **BY_TIME).dataset for text in ("", "age>=65"))
        assert plain.digest == divided.digest
        assert plain.train.subgroups == {}
        for one, other in ((plain.train, divided.train), (plain.test, divided.test)):
            assert one.columns.keys() == other.columns.keys()
            assert all(np.array_equal(one.columns[k], other.columns[k], equal_nan=True) for k in one.columns)
        counts = np.unique(divided.test.subgroups["age>=65"], return_counts=True)
        line = ", ".join(f"{name} ({n})" for name, n in zip(*counts, strict=True))
        notes = [note.line for note in what_is_learnt(of("age>=65", columns=columns, **BY_TIME))]
        assert f"subgroups to test by 'age', {learnt_from} of the model: {line}" in notes


def test_with_folds_and_in_a_second_process_they_are_the_same(of):
    inputs = of("sex", folds=2, fold=1)
    whole = inputs.dataset
    notes = [note.line for note in what_is_learnt(inputs)]
    tested = whole.test.subgroups["sex"][inputs.partitions.test_rows]
    counts = ", ".join(f"{name or 'no value'} ({(tested == name).sum()})" for name in ("", "f", "m"))
    assert f"subgroups to test by 'sex', no input of the model: {counts}" in notes
    assert 15 < len(tested) < 25
    assert whole.test is whole.train
    row = whole.train.columns["x"][:, 0].astype(int)
    assert whole.train.subgroups["sex"].tolist() == [SEX[i % 4] for i in row]
    first = of("sex").dataset
    clear_process_caches()
    again = of("sex").dataset  # from the cache
    assert again is not first
    assert again.test.subgroups["sex"].tolist() == first.test.subgroups["sex"].tolist()


def test_of_pictures_that_a_table_names(tmp_path, load):
    folder = tmp_path / "pictures"
    folder.mkdir()
    lines = []
    for n in range(20):
        Image.new("L", (4, 3), n).save(folder / f"{n:02}.png")
        lines.append(f"{n:02}.png,{n % 2},{'fm'[n // 2 % 2]}")
    (folder / "labels.csv").write_text("picture,label,sex\n" + "\n".join(lines) + "\n")
    data = load(folder, label_column="label", subgroups="sex")
    for split in (data.train, data.test):
        value = split.columns["x"][:, 0, 0, 0].astype(int)
        assert split.subgroups["sex"].tolist() == ["fm"[n // 2 % 2] for n in value]
    shifted = load(folder, label_column="label", subgroups="sex", feature_shift="inverted")
    assert shifted.test.subgroups["sex"].tolist() == data.test.subgroups["sex"].tolist()


PRIVATE = {"dp": "client", "dp_noise": 1.0, "dp_delta": 0.1, "strategy": "fedavg", "client": "shared"}
DIGITS = {"dataset": "digits", "partition": "iid", "columns": "auto"}
NUMBERS = {"label_column": "outcome,age", "problem": "regression"}


@pytest.mark.parametrize(
    ("text", "keys", "line"),
    [
        ("sex,", {}, r"^subgroups: 'sex,' is not allowed; expected columns with commas, or comparisons"),
        ("age>", {}, r"^subgroups: 'age>' is not allowed; expected columns with commas"),
        ("age>=old", {}, r"^subgroups: 'age>=old' is not allowed; expected columns with commas"),
        ("sex,sex", {}, r"^subgroups: 'sex,sex' is not allowed; expected each once, not 'sex' twice$"),
        ("sxe", {}, r"^subgroups: unknown name 'sxe' \(did you mean 'sex'\?\)"),
        ("age", {}, r"^subgroups: 'age' has 40 values \('20', '22', '24' and 37 more\); expected at most 20"),
        ("outcome", {}, r"^subgroups: 'outcome' is not allowed; expected another column: this is the label"),
        ("sex>=3", {}, r"^subgroups: 'sex' holds 'f' \(30 rows\); expected numbers, as the value is$"),
        ("sex>=2022-01-31", {}, r"as 2024-01-31, as the value is \(date-format reads others, such as %d"),
        ("age>=650", {}, r"some rows only: 'age>=650' does for no one$"),
        ("age>=6", {}, r"some rows only: 'age>=6' does for every one$"),
        ("smoker==j", {}, r"some rows only: 'smoker==j' does for no one$"),
        ("sex", PRIVATE, r"^subgroups: 'sex' .* expected none with dp 'client': metrics by subgroup"),
        ("sex", {"predictions": "off"}, r"^predictions: 'off' is not allowed; expected 'auto' or 'on' with"),
        ("sex", DIGITS, r"^subgroups: 'sex' .* expected none: the data are no table, nor pictures that a"),
        ("sex", NUMBERS, r"^subgroups: 'sex' .* expected none: a case has several labels or numbers$"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(asked, text, keys, line):
    with pytest.raises(UserError, match=line) as error:
        Federation(asked(text, **keys))
    assert "\n" not in str(error.value)


def test_a_site_may_lack_a_column_and_the_server_says_that_it_shows_nothing(configured, table, tmp_path):
    pytest.importorskip("fedbn_flower.study")
    keys = {"dataset": "shape:1:2", "label_column": "outcome=0|1", "columns": "x", "model": "mlp-bn"}
    config = configured(**keys, partition="iid", subgroups="sex,race,age>=650")
    inputs = inputs_of(config, table, str(tmp_path / "cache"))
    assert list(inputs.dataset.test.subgroups) == ["sex", "age>=650"]
    server = inputs_of(config)
    assert "stay at the nodes" in unused_keys(server, FLOWER)["subgroups"]
    assert "subgroups" not in unused_keys(server, SIMULATION)


def test_values_that_differ_in_case_only_are_said_to_be_different(of, tmp_path):
    rows = [f"{i},{'ab'[i % 2]},{['f', 'F ', 'm'][i % 3]},{i % 2}" for i in range(40)]
    (tmp_path / "t.csv").write_text("x,site,sex,outcome\n" + "\n".join(rows) + "\n")
    inputs = of("sex", dataset=str(tmp_path / "t.csv"))
    assert "'F ', 'f' in 'sex' differ only in case or blanks, and are different subgroups" in [
        note.line for note in what_is_learnt(inputs)
    ]


def test_arrays_have_them_beside_them():
    found = given_subgroups({"sex": (["f", None], np.array(["m"]))}, [2, 1])
    assert {name: [part.tolist() for part in pair] for name, pair in found.items()} == {
        "sex": [["f", ""], ["m"]]
    }
    truths = given_subgroups({"old": (np.array([True, False]), np.array([1]))}, [2, 1])
    assert [part.tolist() for part in truths["old"]] == [["True", "False"], ["1"]]


@pytest.mark.parametrize(
    ("given_", "line"),
    [
        ({"a,b": ([1], [1])}, "^subgroups: 'a,b' is not allowed; expected names without commas"),
        ({"a>=1": ([1], [1])}, "^subgroups: 'a>=1' is not allowed; expected names without commas"),
        ({"a": [1]}, "^subgroups: 'a' has list; expected a pair of arrays"),
        ({"a": ([1, 2], [1])}, r"^subgroups: of 'a' they are int64 \(2,\); expected 1 words"),
        ({"a": ([1.5], [1])}, r"^subgroups: of 'a' they are float64 \(1,\); expected 1 words"),
    ],
)
def test_arrays_that_fit_nothing(given_, line):
    with pytest.raises(UserError, match=line):
        given_subgroups(given_, [1, 1])
