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
from tests.fedbn_flower.privacy.asked import Site

from .processes import FORGETTING, LONG, bits, start_flwr_run, tracebacks

pytestmark = pytest.mark.slow

SITES = 2
DP = {"dp": "example", "dp-noise": 2.0, "dp-delta": 1e-4, "model": "linear", "client": "shared"}
RUN = {"rounds": 1, "local-epochs": 1, "num-clients": SITES}


class Owned(LocalFederation):
    """SuperNodes with data of their own."""

    def start_supernode(self, index):
        self.node_config = f'data-path="{self.data(index)}" cache-dir="{self.folder / "cache"}"'
        super().start_supernode(index)

    def data(self, index):
        return self.folder.parent / f"patients-{index}"

    def log(self, index):
        return (self.folder / f"site-{index}" / "log.txt").read_text()

    def ledger(self, index):
        """The only line of the ledger of a SuperNode's data."""
        client = name_of_data(str(self.data(index)))
        return json.loads(path_of_ledger(self.folder / f"site-{index}" / "state", client).read_text())


def test_real_supernodes_protect_whole_patients(undrawn_app, configured, cache_dir, tmp_path):
    """Each has a table of its own. The bits are the simulation's, and each ledger counts patients, not rows;
    its epsilon is infinite, since who knows the public key could take the noise away, and with any bound of
    the owners nothing is left for a second run, which has another name, and asks these sites by hand.

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
    federation = Owned(tmp_path / "federation", SITES)
    federation.environment |= FORGETTING
    public = {key.replace("-", "_"): value for key, value in {**RUN, **DP, **keys}.items()}
    here = {"dataset": str(tables), "partition": "natural:site"}
    shares = inputs_of(configured(**public, **here)).partitions
    for split in ("train", "test"):
        table = pd.read_csv(tables / f"{split}.csv")
        for i in range(SITES):
            folder = federation.data(i)
            folder.mkdir(exist_ok=True)
            table.iloc[getattr(shares, split)[i]].to_csv(folder / f"{split}.csv", index=False)

    with federation:
        nodes = {**RUN, **DP, **keys, "dataset": "shape:3:2"}
        start_flwr_run(federation, undrawn_app, tmp_path, "nodes", **nodes).wait(LONG)
    assert "Traceback" not in (tmp_path / "nodes.log").read_text()
    with (tmp_path / "nodes" / "failures.csv").open() as file:
        assert not [*csv.DictReader(file)]
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
        line = federation.ledger(i)
        assert (line["probability"], line["count"], line["unit"]) == (6 / count, count // 6, "patient")
        assert line["epsilon"] is None
        lines = f"rows with one value of 'patient' are protected together: {count} values"
        assert lines in federation.log(i)
        assert not tracebacks(federation.log(i))

    # Their owners now bound what all runs may spend, whatever these call themselves.
    again = configured(**{**public, "dataset": "shape:3:2", "dp_seed": -1, "memory_name": "another"})
    bounds = {"dp_required": True, "dp_max_epsilon": 3.0, "dp_max_delta": 1e-4}
    spent = "dp-max-epsilon: this site's budget of 3 is spent: epsilon is inf over all runs, and would be inf"
    for i in range(SITES):
        state = federation.folder / f"site-{i}" / "state"
        site = Site(again, data_path=str(federation.data(i)), state_dir=str(state), **bounds)
        assert site.refusal("train", flower_run=2).startswith(spent)
