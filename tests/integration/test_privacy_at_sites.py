"""Privacy at real SuperNodes with data of their own: the simulation's bits, and a budget over runs."""

import csv
import json

import numpy as np
import pytest

from deploy.local_federation import LocalFederation
from fedbn_flower import simulate
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
    here = {"partition": "dirichlet:1", "cache_dir": cache_dir, "backend": "inline", "progress": False}
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
