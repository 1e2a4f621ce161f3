"""Two runs at once on the same two SuperNodes: each site has a worker for either, and the bits are theirs."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from deploy.local_federation import LocalFederation
from fedbn_flower.config.making import run_config
from fedbn_flower.federation.federation import Federation
from fedbn_flower.runtime.simulation import simulate

from .guide import SOONER
from .processes import ROOT, bits

pytestmark = pytest.mark.slow

SITES = 2
COMMON = {"num-clients": SITES, "partition": "iid", "dataset": "digits", "rounds": 3}
RUNS = {
    "mime": {**COMMON, "strategy": "mime", "objective": "mime", "client": "fedavg", "model": "2nn"},
    "fedyogi": {**COMMON, "strategy": "fedyogi", "client": "fedbn", "model": "mlp-bn"},
}


def test_runs_that_take_turns_have_their_own_bits_and_workers(tmp_path, cache_dir, pictures_not_drawn):
    """One of them asks sites before they train (`mime`), the other keeps a memory at each."""
    federation = LocalFederation(tmp_path / "federation", SITES)
    federation.environment |= SOONER

    def run(name):
        given = {**RUNS[name], "cache-dir": str(cache_dir), "run-dir": str(tmp_path / name)}
        words = " ".join(f"{key}={value!r}" for key, value in given.items())
        command = ["flwr", "run", ROOT, "local", "--stream", "--run-config", words]
        return federation.run(command, quiet=True).stdout

    with federation, ThreadPoolExecutor() as pool:
        outputs = dict(zip(RUNS, pool.map(run, RUNS), strict=True))
        logs = [(federation.folder / f"site-{i}" / "log.txt").read_text() for i in range(SITES)]
    for name, keys in RUNS.items():
        here = tmp_path / f"{name}-here"
        simulate(Federation(run_config({**keys, "cache-dir": str(cache_dir)})), here, None)
        assert bits(tmp_path / name) == bits(here), outputs[name]
    assert [log.count("stays for this node's next messages") for log in logs] == [len(RUNS)] * SITES
