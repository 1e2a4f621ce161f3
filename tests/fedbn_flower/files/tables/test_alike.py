"""Numbers standardised alike at all clients: ``normalize`` of tables and of float arrays."""

from functools import reduce
from operator import add

import numpy as np
import pandas as pd
import pytest
import torch

from fedbn_flower.core.errors import UserError
from fedbn_flower.data import Numeric
from fedbn_flower.data.numeric import FeatureMoments, Table
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.server.federation import Federation

from ...data.test_own_data import Sites, assert_sites_give_the_simulation

NAN = np.nan
SECONDS = 1_700_000_000
COLUMNS = "age,creatinine,sex=f|m,year,seen"


def test_moments_of_parts_add_up_to_those_of_all():
    """A usual column, one far from 0, a constant one, one with gaps, one without any value."""
    rng = np.random.default_rng(0)
    x = rng.normal([3, 2e7, 0, -1, 0], [2, 3, 0, 1e-3, 1], (400, 5)).astype(np.float32)
    x[:, 2] = 0.1
    x[rng.random(400) < 0.3, 3] = NAN
    x[:50, 3] = NAN  # the first part has none
    x[:, 4] = NAN
    whole = FeatureMoments.of(x, range(5)).scale()
    parts = [FeatureMoments.of(part, range(5)) for part in np.split(x, [50, 51, 200])]
    for some in (parts, parts[::-1]):
        assert reduce(add, some).scale() == whole
    values = x[:, :4].astype(np.float64)
    np.testing.assert_allclose(whole.mean, [*np.nanmean(values, 0), 0], rtol=1e-7)
    deviations = np.nanstd(values, 0)
    np.testing.assert_allclose(whole.std, [*deviations[:2], 1, deviations[3], 0], rtol=1e-7)


def test_rows_of_any_client_are_prepared_by_all_rows():
    """Of 1 and 3 the mean is 2, the deviation 1; categories stay; a column without a value becomes 0."""
    x = np.array([[1, 1, NAN, 5], [3, 0, NAN, 5], [NAN, 1, NAN, 5]], np.float32)
    facts = {"predicts": "numbers", "outputs": 1, "numbers": [0, 2, 3], "columns": ""}
    table = Table(facts, {"x": x, "y": np.ones((3, 1), np.float32)})
    prepare = table.prepare(np.array([0]), True)
    assert prepare is table.prepare(np.array([1, 2]), True)
    new = {"x": torch.tensor([[4.0, 1, 9, 6]]), "y": torch.ones(1)}
    assert prepare({"x": torch.from_numpy(x), "y": torch.ones(3)})[0].tolist() == [
        [-1, 1, 0, 0],
        [1, 0, 0, 0],
        [0, 1, 0, 0],
    ]
    assert prepare(new)[0].tolist() == [[2, 1, 0, 1]]


def test_volumes_are_standardised_by_channel():
    rng = np.random.default_rng(0)
    x = rng.normal([[[[[40.0]]], [[[-3.0]]]]], [[[[[9.0]]], [[[0.1]]]]], (6, 2, 3, 4, 5)).astype(np.float32)
    kind = Numeric({"predicts": "masks", "outputs": 2}, {"x": x, "y": np.zeros((6, 3, 4, 5), np.uint8)})
    values, _ = kind.prepare(np.arange(2), True)({"x": torch.from_numpy(x), "y": torch.zeros(6)})
    assert values.mean((0, 2, 3, 4)).tolist() == pytest.approx([0, 0], abs=1e-5)
    assert values.std((0, 2, 3, 4), correction=0).tolist() == pytest.approx([1, 1], abs=1e-5)


@pytest.fixture
def clinics(tmp_path):
    """The table of two clinics; one measures in another unit. Values are missing, and some far from 0."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 90), ("test", 30)):
        table = pd.DataFrame(
            {
                "clinic": ["a", "b", "b"] * (count // 3),
                "age": rng.normal(60, 12, count).round(1),
                "creatinine": rng.normal(1, 0.2, count).round(3),
                "sex": rng.choice(["f", "m"], count),
                "year": 2020,
                "seen": SECONDS + rng.integers(0, 80, count),
                "y": rng.integers(0, 2, count),
            }
        )
        table.loc[table.clinic == "a", "creatinine"] *= 88.4
        table.loc[5:20, "age"] = NAN
        (tmp_path / "all").mkdir(exist_ok=True)
        table.to_csv(tmp_path / "all" / f"{split}.csv", index=False)
    return tmp_path


def test_sites_with_tables_standardise_as_one_place_would(configured, clinics):
    """The model has the bits of a simulation that sees both tables; every message tells mean and deviation.

    Each site's rows are in the order in which the simulation divides them.
    """
    keys = {"columns": COLUMNS, "client": "shared", "normalize": True, "model": "mlp-bn", "rounds": 1}
    simulated = configured(dataset=str(clinics / "all"), partition="natural:clinic", **keys)
    expected, messages, nodes = assert_sites_give_the_simulation(
        simulated, configured(dataset="shape:6:2", **keys), clinics / "all"
    )
    x = pd.read_csv(clinics / "all" / "train.csv")
    assert {m.metadata.message_type for m in messages[:4]} == {"query.names", "query.moments"}
    for message in messages[4:]:
        mean, std = (message.content["config"][f"feature-{name}"] for name in ("mean", "std"))
        assert mean[5] - SECONDS == pytest.approx((x.seen - SECONDS).mean(), abs=1e-4)
        np.testing.assert_allclose(mean[:5], [x.age.mean(), x.creatinine.mean(), 0, 0, 2020], rtol=1e-6)
        deviations = [x.age.std(ddof=0), x.creatinine.std(ddof=0), 0, 0, 1, x.seen.std(ddof=0)]
        np.testing.assert_allclose(std, deviations, rtol=1e-6)
    own = configured(dataset="shape:6:2", **keys | {"normalize": False})
    other = Federation(own).run(Sites(own, nodes), [])
    assert any((other[name].numpy() != array.numpy()).any() for name, array in expected.items())


@pytest.mark.parametrize(("partition", "normalize", "locally"), [
    ("iid", False, True), ("iid", True, False), ("natural:clinic", True, True),
])  # fmt: skip
def test_rows_prepared_alike_of_clients_that_are_no_sites_are_everybodys(
    configured, clinics, partition, normalize, locally
):
    keys = {"columns": COLUMNS, "partition": partition, "normalize": normalize, "client": "fedavg"}
    config = configured(dataset=str(clinics / "all" / "train.csv"), **keys)
    assert inputs_of(config).evaluates_locally == locally


def test_a_kind_that_prepares_by_itself_does_not_ignore_normalize(configured):
    config = configured(
        dataset="examples/own_kind.py:Laboratory", partition="natural:client", num_clients=3, normalize=True
    )
    with pytest.raises(UserError, match="normalize: True is not allowed; expected False, since the data are"):
        inputs_of(config).dataset


@pytest.mark.slow
def test_lockstep_is_one_by_one(run, clinics, caplog):
    """Of 16 clients, so many as train in lockstep, whose columns are scaled alike."""
    pytest.importorskip("fedbn_flower.lockstep")
    keys = {"dataset": str(clinics / "all"), "columns": COLUMNS, "partition": "iid", "num_clients": 16}
    keys |= {"normalize": True, "model": "mlp-bn", "batch_size": 4}
    with caplog.at_level("INFO", "flwr.fedbn"):
        fast, slow = (run(**keys, fast=fast).model(client=0).state_dict() for fast in ("auto", "off"))
    assert [line for line in caplog.messages if line.startswith("clients train")] == [
        "clients train 8 at a time: in lockstep",
        "clients train one by one: fast is off",
    ]
    for name, entry in slow.items():
        torch.testing.assert_close(fast[name], entry)
