"""What decides a model's shape is named beforehand where rows are private, and not read from them."""

import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.data import Request
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.server.federation import Federation

NOTIONS = ("client", "local", "example")
GIVEN = {"dp_noise": 1.0, "dp_delta": 1e-3, "dp_seed": 5, "client": "shared", "model": "linear", "rounds": 1}
NAMED = {"columns": "age,sex=f|m", "label_column": "outcome=no|yes"}


@pytest.fixture
def private(configured, tmp_path):
    path = tmp_path / "patients.csv"
    rows = [f"{20 + i},{'fm'[i % 2]},{('no', 'yes')[i % 3 == 0]},{i / 2}" for i in range(80)]
    path.write_text("age,sex,outcome,days\n" + "\n".join(rows) + "\n")
    keys = {"dataset": str(path), "num_clients": 2, "partition": "iid", "weighting": "auto", **GIVEN}
    return lambda **changed: configured(**{**keys, **NAMED, "dp": "example", **changed})


READ = [
    (
        {"columns": "auto"},
        "columns: missing; expected names beforehand, since rows are private, such as "
        "'age,sex=VALUE|VALUE,days'",
    ),
    (
        {"columns": "age,sex"},
        "columns: 'sex' is not allowed; expected the column with its values: sex=VALUE|VALUE",
    ),
    *(
        (
            keys,
            "label-column: 'outcome' is not allowed; expected the column with its classes, "
            "outcome=CLASS|CLASS, or predict 'numbers', since rows are private",
        )
        for keys in (
            {"label_column": "outcome"},
            {"label_column": "auto"},
            {"label_column": "outcome", "predict": "classes"},
        )
    ),
    (
        {"label_column": "days"},
        "label-column: 'days' is not allowed; expected the column with its classes, days=CLASS|CLASS, or "
        "predict 'numbers', since rows are private",
    ),
]


@pytest.mark.parametrize(
    ("keys", "line", "dp"), [*((*case, "example") for case in READ), *((*READ[0], dp) for dp in NOTIONS[:2])]
)
def test_what_would_be_read_from_private_rows_is_refused(private, dp, keys, line):
    with pytest.raises(UserError) as error:
        Federation(private(dp=dp, **keys))
    assert str(error.value) == line


@pytest.mark.parametrize(
    ("dp", "keys"),
    [
        *((dp, {}) for dp in NOTIONS),
        ("example", {"label_column": "days", "predict": "numbers"}),
        ("example", {"label_column": "days", "problem": "regression"}),
    ],
)
def test_what_is_named_is_learnt_whatever_the_rows_hold(private, dp, keys):
    assert Federation(private(dp=dp, **keys)).dataset.spec.shape == (3,)


def test_a_class_and_a_category_that_no_row_has_count(private):
    """So the model's shape is the same for all rows that fit the names."""
    names = {"columns": "age,sex=f|m|x", "label_column": "outcome=no|maybe|yes"}
    spec = inputs_of(private(dp="example", **names)).dataset.spec
    assert (spec.shape, spec.outputs) == ((4,), 3)


def test_without_privacy_they_are_read_from_the_rows_as_before(configured, private):
    named = private()
    for keys in ({}, {"columns": "auto", "label_column": "outcome"}):
        config = configured(dataset=named.dataset, partition="iid", model="linear", **{**NAMED, **keys})
        assert inputs_of(config).dataset.spec.outputs == 2


def test_public_data_are_exempt(configured):
    assert inputs_of(configured(dp="example", **GIVEN)).dataset.spec.outputs == 10


def test_what_was_read_without_privacy_does_not_do_for_a_private_run(configured, private):
    """The table is in the cache, with what was inferred of it."""
    table = private().dataset
    keys = {"dataset": table, "partition": "iid", "model": "linear", "label_column": "outcome"}
    assert inputs_of(configured(**keys)).dataset.spec.outputs == 2
    with pytest.raises(UserError, match="^columns: missing"):
        Federation(private(columns="auto"))


def test_whether_rows_are_private_is_in_no_name_of_the_cache():
    assert str(Request("digits", private=True)) == str(Request("digits"))
