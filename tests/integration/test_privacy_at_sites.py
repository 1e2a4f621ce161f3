"""Real SuperNodes with data of their own: with privacy the simulation's bits and a budget over runs;
names of classes are compared."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image

pytest.importorskip("fedbn_flower.consortium")

from fedbn_flower import simulate
from fedbn_flower.consortium.local import LocalFederation
from fedbn_flower.core.partition_id import name_of_data
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.privacy import accounts
from fedbn_flower.site.ledger import path_of_ledger

from .hospital import rounds_done
from .processes import FORKING, bits, tracebacks

pytestmark = pytest.mark.slow

SITES, BATCH = 2, 120
DP = {"dp": "example", "dp-noise": 2.0, "dp-delta": 1e-4, "model": "linear", "client": "shared"}
RUN = {"rounds": 1, "local-epochs": 1, "batch-size": BATCH, "num-clients": SITES}


class Owned(LocalFederation):
    """SuperNodes with data of their own, whose owners make demands."""

    def start_supernode(self, index):
        """That is done by `hold`."""

    def hold(self, name, owners=("",) * SITES):
        """Start the SuperNodes, those that run once more, with the data of this name and these demands."""
        for i, demands in enumerate(owners):
            if running := self.services.get(f"site-{i}"):
                running.stop()
            data, cache = self.folder / f"{name}-{i}", self.folder / "cache"
            self.node_config = f'data-path="{data}" cache-dir="{cache}" {demands}'
            super().start_supernode(i)

    def log(self, index):
        return (self.folder / f"site-{index}" / "log.txt").read_text()

    def ledger(self, index, name):
        """The only line of the ledger of a SuperNode's data."""
        client = name_of_data(str(self.folder / f"{name}-{index}"))
        return json.loads(path_of_ledger(self.folder / f"site-{index}" / "state", client).read_text())

    def flwr_run(self, folder, **keys):
        given = {**RUN, "run-dir": str(folder), **keys}
        words = " ".join(f"{key}={json.dumps(value)}" for key, value in given.items())
        done = self.run(["flwr", "run", self.app, "local", "--stream", "--run-config", words], quiet=True)
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def federation(tmp_path_factory, undrawn_project):
    federation = Owned(tmp_path_factory.mktemp("federation"), SITES)
    federation.app = undrawn_project
    federation.environment |= FORKING
    with federation:
        yield federation


def failures(folder):
    with (folder / "failures.csv").open() as file:
        return list(csv.DictReader(file))


def test_real_supernodes_protect_whole_patients(federation, configured, cache_dir, tmp_path):
    """Each has a table of its own. The bits are the simulation's, and each ledger counts patients, not rows;
    its epsilon is infinite, since who knows the public key could take the noise away.

    The rows of a site are in the order in which the simulation divides them.
    """
    tables = tmp_path / "tables"
    tables.mkdir()
    counts = (24, 36)
    for split, share in (("train", 1), ("test", 3)):
        rows = []
        for i, count in enumerate(counts):
            patients = np.random.default_rng(i).permutation(np.repeat(np.arange(count // share), 2))
            rows += [
                {"site": f"s{i}", "patient": f"{i}-{p}", "age": 20 + j, "sex": "fm"[j % 2], "outcome": p % 2}
                for j, p in enumerate(patients.tolist())
            ]
        pd.DataFrame(rows).to_csv(tables / f"{split}.csv", index=False)
    keys = {
        "columns": "age,sex=f|m", "label-column": "outcome=0|1", "dp-scale": "age=50:20",
        "dp-unit": "patient", "batch-size": 6, "dp-seed": 3,
    }  # fmt: skip
    public = {key.replace("-", "_"): value for key, value in {**RUN, **DP, **keys}.items()}
    here = {"dataset": str(tables), "partition": "natural:site"}
    shares = inputs_of(configured(**public, **here)).partitions
    for split in ("train", "test"):
        table = pd.read_csv(tables / f"{split}.csv")
        for i in range(SITES):
            folder = federation.folder / f"patients-{i}"
            folder.mkdir(exist_ok=True)
            table.iloc[getattr(shares, split)[i]].to_csv(folder / f"{split}.csv", index=False)

    federation.hold("patients")
    output = federation.flwr_run(tmp_path / "nodes", **DP, **keys, dataset="shape:3:2")
    assert "Traceback" not in output
    assert not failures(tmp_path / "nodes")
    simulate(
        **public,
        **here,
        cache_dir=cache_dir,
        backend="inline",
        progress=False,
        run_dir=tmp_path / "simulation",
    )
    assert bits(tmp_path / "nodes") == bits(tmp_path / "simulation")
    private = [
        json.loads((tmp_path / n / "summary.json").read_text())["privacy"] for n in ("nodes", "simulation")
    ]
    assert private[0] == private[1]
    for i, count in enumerate(counts):
        line = federation.ledger(i, "patients")
        assert (line["probability"], line["count"], line["unit"]) == (6 / count, count // 6, "patient")
        assert line["epsilon"] is None
        lines = f"rows with one value of 'patient' are protected together: {count} values"
        assert lines in federation.log(i)


def test_a_budget_holds_over_runs_of_real_supernodes(federation, configured, write_site, tmp_path):
    """A round is within the budget of each site. A second run has another name and another ``memory-name``,
    and with it each site would exceed its budget.
    """
    split = configured(num_clients=SITES, partition="dirichlet:1")
    once, twice = [], []
    for i in range(SITES):
        folder = federation.folder / f"digits-{i}"
        write_site(split, i, folder)
        count = len(np.load(folder / "train-labels.npy"))
        plan = accounts.Plan("poisson", BATCH / count, count, 2 * -(-count // BATCH), 1e-4)
        once.append(accounts.epsilon(2.0, plan, plan.rounds // 2))
        twice.append(accounts.epsilon(2.0, plan))
    budgets = [round((one + two) / 2, 3) for one, two in zip(once, twice, strict=True)]
    federation.hold(
        "digits", [f"dp-required=true dp-max-epsilon={most} dp-max-delta=1e-4" for most in budgets]
    )
    keys = {**DP, "dataset": "shape:1x8x8:10", "fraction-evaluate": 0.0}
    federation.flwr_run(tmp_path / "first", **keys)
    output = federation.flwr_run(tmp_path / "second", **keys, **{"memory-name": "another"})
    assert not failures(tmp_path / "first")
    found = {int(row["partition"]): row["reason"] for row in failures(tmp_path / "second")}
    for i in range(SITES):
        line = (
            f"dp-max-epsilon: this site's budget of {budgets[i]:g} is spent: epsilon is {once[i]:.3f} over "
            f"all runs, and would be {twice[i]:.3f} with this answer"
        )
        assert found[i] == line
        assert federation.log(i).count(line) == 1
        assert not tracebacks(federation.log(i))
        assert federation.ledger(i, "digits")["epsilon"] == pytest.approx(once[i], rel=1e-9)
    assert "every client failed" in output
    assert "Traceback" not in output


def test_classes_that_sites_number_by_other_names_are_refused_and_the_same_train(federation, tmp_path):
    """Each has folders of pictures; the owner of the second then gives a folder the others' name."""
    for i, names in enumerate((["abnormal", "normal"], ["normal", "pathologic"])):
        for number, name in enumerate(names):
            folder = federation.folder / f"named-{i}" / name
            folder.mkdir(parents=True)
            for picture in range(10):
                pixels = np.full((8, 8), 20 * picture + number, np.uint8)
                Image.fromarray(pixels).save(folder / f"{picture}.png")
    federation.hold("named")
    keys = {"dataset": "shape:1x8x8:2", "model": "linear", "client": "shared"}
    output = federation.flwr_run(tmp_path / "other", **keys)
    line = (
        "data-path: the classes are at site 0 'abnormal', 'normal' and at site 1 'normal', 'pathologic'; "
        "expected the same names in the same order"
    )
    assert line in output
    assert "Traceback" not in output
    assert not rounds_done(tmp_path / "other")
    folder = federation.folder / "named-1"
    (folder / "pathologic").rename(folder / "abnormal")
    output = federation.flwr_run(tmp_path / "same", **keys)
    assert (tmp_path / "same/summary.json").exists(), output
    assert not failures(tmp_path / "same")
    for i in range(SITES):
        assert "classes here: 0 'abnormal', 1 'normal'" in federation.log(i)
