"""Real SuperNodes with data of their own: with privacy the simulation's bits, and a budget over runs."""

import csv
import json

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("fedbn_flower.consortium")

from fedbn_flower import simulate
from fedbn_flower.consortium.local import LocalFederation
from fedbn_flower.core.partition_id import name_of_data
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.site.ledger import path_of_ledger

from .processes import FORKING, LONG, bits, start_flwr_run, tracebacks

pytestmark = pytest.mark.slow

SITES = 2
DP = {"dp": "example", "dp-noise": 2.0, "dp-delta": 1e-4, "model": "linear", "client": "shared"}
RUN = {"rounds": 1, "local-epochs": 1, "num-clients": SITES}


class Owned(LocalFederation):
    """SuperNodes with data of their own, whose owners make demands."""

    def start_supernode(self, index):
        """That is done by `hold`."""

    def hold(self, name, demands=""):
        """Start the SuperNodes, those that run once more, with the data of this name and these demands."""
        for i in range(SITES):
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

    def flwr_run(self, folder, name, **keys):
        start_flwr_run(self, self.app, folder, name, **RUN | keys).wait(LONG)
        return (folder / f"{name}.log").read_text()


@pytest.fixture(scope="module")
def federation(tmp_path_factory, undrawn_app):
    federation = Owned(tmp_path_factory.mktemp("federation"), SITES)
    federation.app = undrawn_app
    federation.environment |= FORKING
    with federation:
        yield federation


def failures(folder):
    with (folder / "failures.csv").open() as file:
        return list(csv.DictReader(file))


def test_real_supernodes_protect_whole_patients(federation, configured, cache_dir, tmp_path):
    """Each has a table of its own. The bits are the simulation's, and each ledger counts patients, not rows;
    its epsilon is infinite, since who knows the public key could take the noise away, and with any bound of
    the owners nothing is left for a second run, which has another name.

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
    output = federation.flwr_run(tmp_path, "nodes", **DP, **keys, dataset="shape:3:2")
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

    # Their owners now bound what all runs may spend, whatever these call themselves.
    federation.hold("patients", "dp-required=true dp-max-epsilon=3.0 dp-max-delta=1e-4")
    again = {
        **DP,
        **keys,
        "dp-seed": -1,
        "memory-name": "another",
        "dataset": "shape:3:2",
        "fraction-evaluate": 0.0,
    }
    output = federation.flwr_run(tmp_path, "again", **again)
    spent = "dp-max-epsilon: this site's budget of 3 is spent: epsilon is inf over all runs, and would be inf"
    assert [row["reason"].startswith(spent) for row in failures(tmp_path / "again")] == [True] * SITES
    assert all(federation.log(i).count(spent) == 1 for i in range(SITES))
    assert "every client failed" in output
    assert "Traceback" not in output
    assert not any(tracebacks(federation.log(i)) for i in range(SITES))
