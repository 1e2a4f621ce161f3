"""DP-SGD at sites with data of their own: images and tables, each accounted by its own numbers."""

import numpy as np
import pytest
import torch

from fedbn_flower.core.errors import RunFailed, UserError
from fedbn_flower.core.partition_id import name_of_data
from fedbn_flower.data.column_text import Feature
from fedbn_flower.data.scales import public_scale
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.privacy import accounts
from fedbn_flower.privacy.example_privacy import ExamplePrivacy
from fedbn_flower.runtime.grid import FIRST_NODE_ID
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.ledger import SiteLedger, path_of_ledger
from tests.fedbn_flower.data.test_own_data import Sites

from .runs import charges, model, of_examples, private, run_on, simulated


@pytest.fixture
def sites(configured, write_site, tmp_path):
    """The node configs of three sites with 300, 400 and 700 of the digits' examples or so."""
    for partition in range(3):
        write_site(
            configured(num_clients=3, partition="dirichlet:1"), partition, tmp_path / f"site-{partition}"
        )
    return [
        {
            "data-path": str(tmp_path / f"site-{i}"), "partition-id": i, "cache-dir": str(tmp_path / "cache"),
            "state-dir": str(tmp_path / f"state-{i}"),
        }
        for i in range(3)
    ]  # fmt: skip


@pytest.mark.slow
def test_sites_with_data_of_their_own_give_the_bits_and_the_ledger_of_the_simulation(
    configured, sites, tmp_path
):
    """The noise is found for the sizes that the sites have said, which are public."""
    keys = {"dp_noise": 0, "dp_epsilon": 8.0, "rounds": 2, "batch_size": 120}
    config = of_examples(configured, dataset="shape:1x8x8:10", **keys)
    summary = run_on(Sites(config, sites), config, tmp_path / "nodes")
    expected = simulated(of_examples(configured, partition="dirichlet:1", **keys), tmp_path / "simulation")
    assert model(tmp_path / "nodes") == model(tmp_path / "simulation")
    assert charges(tmp_path / "nodes") == charges(tmp_path / "simulation")
    assert summary["privacy"] == expected["privacy"]
    assert 7.9 < summary["privacy"]["epsilon"] <= 8


def test_a_site_that_does_not_say_its_size_ends_the_run(configured, sites, tmp_path):
    """The run's epsilon would not be its."""
    sites[1]["dp-required"] = "local"
    config = of_examples(configured, dataset="shape:1x8x8:10", dp_epsilon=8.0, dp_noise=0, rounds=1)
    with pytest.raises(
        RunFailed, match="^query.sizes: partition 1: dp: 'example' is not allowed at this site"
    ):
        run_on(Sites(config, sites), config, tmp_path / "nodes")


class Late(Sites):
    """The third site leaves after the first round, and a fourth one takes its place."""

    rounds = 0

    def get_node_ids(self):
        return [FIRST_NODE_ID + i for i in ((0, 1, 3) if self.rounds else (0, 1, 2))]

    def work(self, messages, timeout):
        yield from super().work(messages, timeout)
        self.rounds += bool(messages) and messages[0].metadata.message_type == "train"


def test_a_site_that_joins_late_is_in_the_stated_epsilon(configured, sites, tmp_path):
    """It has 50 training examples, so a batch of 40 has nearly all of them."""
    few = np.random.default_rng(0).integers(0, 255, (50, 8, 8), dtype=np.uint8)
    folder = tmp_path / "few"
    folder.mkdir()
    for split in ("train", "test"):
        np.save(folder / f"{split}-images.npy", few)
        np.save(folder / f"{split}-labels.npy", np.arange(50) % 10)
    state = str(tmp_path / "state-3")
    late = {
        "data-path": str(folder),
        "partition-id": 3,
        "cache-dir": str(tmp_path / "cache"),
        "state-dir": state,
    }
    config = of_examples(configured, dataset="shape:1x8x8:10", batch_size=40, rounds=3, dp_seed=-1)
    found = run_on(Late(config, [*sites, late]), config, tmp_path / "run")["privacy"]
    counts = [len(np.load(f"{node['data-path']}/train-labels.npy")) for node in sites]
    plans = [accounts.Plan("poisson", 40 / n, n, 3 * -(-n // 40), 1e-3) for n in (*counts, 50)]
    by_hand = [accounts.epsilon(1.0, plan) for plan in plans]
    assert found["epsilon"] == max(by_hand) == by_hand[3] > max(by_hand[:3])
    assert len(SiteLedger(path_of_ledger(tmp_path / "state-3", name_of_data(str(folder)))).entries()) == 2


# ---- tables ---------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "patients.csv"
    rows = [f"{20 + i},{'fm'[i % 2]},{i % 3 == 0:d}" for i in range(60)]
    path.write_text("age,sex,outcome\n" + "\n".join(rows) + "\n")
    return path


TABLE = {"columns": "age,sex=f|m", "label_column": "outcome=0|1"}
COLUMNS = [Feature("age"), Feature("sex", ("f", "m")), Feature("bmi")]


def test_of_a_table_no_row_decides_how_another_is_prepared(configured, table):
    config = of_examples(configured, dataset=str(table), dp_scale="age=50:10", **TABLE)
    inputs = inputs_of(config)
    prepare = [inputs.prepare(rows) for rows in (np.arange(5), np.arange(30))]
    columns = {name: column[:4] for name, column in inputs.dataset.train.columns.items()}
    tensors = {name: torch.from_numpy(column.copy()) for name, column in columns.items()}
    found = [one(dict(tensors))[0] for one in prepare]
    assert found[0].equal(found[1])
    np.testing.assert_allclose(found[0][:, 0], (columns["x"][:, 0] - 50) / 10, rtol=1e-6)
    np.testing.assert_array_equal(found[0][:, 1:], columns["x"][:, 1:])


def test_without_a_scale_numbers_of_a_table_stay_as_they_are_which_is_said(configured, table):
    federation = Federation(of_examples(configured, dataset=str(table), **TABLE))
    (line,) = [line for line in federation.warnings if "scale" in line]
    assert line.startswith("dp-scale: none, so numbers of the table stay as they are")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("weight=1:2", r"^dp-scale: unknown name 'weight'.*; expected one of age, bmi$"),
        ("sex=1:2", r"^dp-scale: unknown name 'sex'"),
        ("age=1", r"^dp-scale: 'age=1' is not allowed; expected COLUMN=MEAN:DEVIATION"),
        ("age=1:0", r"^dp-scale: 'age=1:0' is not allowed"),
        ("age", r"^dp-scale: unknown name 'age'"),
    ],
)
def test_scales_that_cannot_be(text, line):
    with pytest.raises(UserError, match=line):
        public_scale(text, COLUMNS)


def test_a_scale_by_encoded_column():
    scale = public_scale("bmi=25:5", COLUMNS)
    assert (scale.mean, scale.std) == ((0, 0, 0, 25), (1, 1, 1, 5))


def test_sizes_are_lacking_of_sites_that_came_later(configured):
    """Each site's epsilon goes by its own size; those asked again are all of which one is not known."""
    account = ExamplePrivacy(private(configured, "example"), None)
    assert not account.lacks([0, 1])  # nobody was asked: the run's terms are known otherwise
    account.learn({0: 100, 1: 200})
    assert [account.lacks(asked) for asked in ([0], [0, 1], [1, 2], [])] == [False, False, True, False]
