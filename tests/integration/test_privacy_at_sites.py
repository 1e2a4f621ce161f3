"""Privacy at real SuperNodes with data of their own: the simulation's bits, and a budget over runs."""

import csv
import json

import numpy as np
import pandas as pd
import pytest

from deploy.local_federation import LocalFederation
from fedbn_flower import simulate
from fedbn_flower.federation.inputs import inputs_of
from fedbn_flower.privacy import accounts

from .processes import ROOT, bits

pytestmark = pytest.mark.slow

SITES, BATCH = 3, 120
DP = {"dp": "example", "dp-noise": 2.0, "dp-delta": 1e-4, "model": "linear", "client": "fedavg"}
RUN = {"rounds": 1, "local-epochs": 1, "batch-size": BATCH, "num-clients": SITES}


class Owned(LocalFederation):
    """SuperNodes with data of their own, whose owners demand ``owners``."""

    owners = ("",) * SITES

    def start_supernode(self, index):
        data, cache = self.folder / f"data-{index}", self.folder / "cache"
        self.node_config = f'data-path="{data}" cache-dir="{cache}" {self.owners[index]}'
        super().start_supernode(index)


def flwr_run(federation, folder, **keys):
    given = {**RUN, **DP, "dataset": "shape:1x8x8:10", "run-dir": str(folder), **keys}
    words = " ".join(f"{key}={json.dumps(value)}" for key, value in given.items())
    done = federation.run(["flwr", "run", str(ROOT), "local", "--stream", "--run-config", words], quiet=True)
    return done.stdout + done.stderr


def failures(folder):
    with (folder / "failures.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_budget_holds_over_runs_of_real_supernodes(configured, write_site, cache_dir, tmp_path):
    """A run under a public key gives the simulation's bits, and no owner who sets bounds takes part in it.

    With a secret key a round is within the budget of each site. A second run has another name and another
    ``memory-name``, and with it each site would exceed its budget.
    """
    place = tmp_path / "federation"
    split = configured(num_clients=SITES, partition="dirichlet:1")
    once, twice = [], []
    place.mkdir()
    for i in range(SITES):
        write_site(split, i, place / f"data-{i}")
        count = len(np.load(place / f"data-{i}" / "train-labels.npy"))
        plan = accounts.Plan("poisson", BATCH / count, count, 2 * -(-count // BATCH), 1e-4)
        once.append(accounts.epsilon(2.0, plan, plan.rounds // 2))
        twice.append(accounts.epsilon(2.0, plan))
    budgets = [round((one + two) / 2, 3) for one, two in zip(once, twice, strict=True)]

    with Owned(place, SITES) as federation:
        flwr_run(federation, tmp_path / "nodes", **{"dp-seed": 3})
    public = {key.replace("-", "_"): value for key, value in {**RUN, **DP, "dp-seed": 3}.items()}
    here = {
        "dataset": "digits",
        "partition": "dirichlet:1",
        "cache_dir": cache_dir,
        "backend": "inline",
        "progress": False,
    }
    simulate(**public, **here, run_dir=tmp_path / "simulation")
    assert bits(tmp_path / "nodes") == bits(tmp_path / "simulation")
    assert not failures(tmp_path / "nodes")

    for i in range(SITES):  # its epsilon is infinite: nobody was protected
        (ledger,) = (place / f"site-{i}" / "state" / "privacy").glob("*.jsonl")
        assert json.loads(ledger.read_text())["epsilon"] is None
        ledger.unlink()
    Owned.owners = [f"dp-required=true dp-max-epsilon={most} dp-max-delta=1e-4" for most in budgets]
    with Owned(place, SITES) as federation:
        flwr_run(federation, tmp_path / "first")
        output = flwr_run(federation, tmp_path / "second", **{"memory-name": "another"})
        logs = [(place / f"site-{i}" / "log.txt").read_text() for i in range(SITES)]
    assert not failures(tmp_path / "first")
    found = {int(row["partition"]): row["reason"] for row in failures(tmp_path / "second")}
    for i in range(SITES):
        line = (
            f"dp-max-epsilon: this site's budget of {budgets[i]:g} is spent: epsilon is {once[i]:.3f} over "
            f"all runs, and would be {twice[i]:.3f} with this answer"
        )
        assert found[i] == line
        assert logs[i].count(line) == 1
        assert "Traceback" not in logs[i]
        (ledger,) = (place / f"site-{i}" / "state" / "privacy").glob("*.jsonl")
        assert json.loads(ledger.read_text())["epsilon"] == pytest.approx(once[i], rel=1e-9)
    assert "every client failed" in output
    assert "Traceback" not in output


def test_real_supernodes_protect_whole_patients(configured, cache_dir, tmp_path):
    """Each has a table of its own. The bits are the simulation's, and each ledger counts patients, not rows.

    The rows of a site are in the order in which the simulation divides them.
    """
    place, tables = tmp_path / "federation", tmp_path / "tables"
    place.mkdir()
    tables.mkdir()
    counts = (24, 30, 36)
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
            (place / f"data-{i}").mkdir(exist_ok=True)
            table.iloc[getattr(shares, split)[i]].to_csv(place / f"data-{i}" / f"{split}.csv", index=False)

    Owned.owners = ("",) * SITES
    with Owned(place, SITES) as federation:
        output = flwr_run(federation, tmp_path / "nodes", **keys, dataset="shape:3:2")
        logs = [(place / f"site-{i}" / "log.txt").read_text() for i in range(SITES)]
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
        (ledger,) = (place / f"site-{i}" / "state" / "privacy").glob("*.jsonl")
        line = json.loads(ledger.read_text())
        assert (line["probability"], line["count"], line["unit"]) == (6 / count, count // 6, "patient")
        assert f"rows with one value of 'patient' are protected together: {count} values" in logs[i]
