"""Workers of real SuperNodes, with TLS and authentication, of two runs at once; the bits are a simulation's.

Of these one has privacy, and its sites ledgers.
One starts its client processes itself; the SuperExec of the other is a process of its own.
"""

import contextlib
import json
import os
import shutil
import signal
from pathlib import Path

import pytest

pytest.importorskip("fedbn_flower.consortium")

from fedbn_flower.config.making import run_config
from fedbn_flower.consortium.local import LocalFederation
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.ledger import path_of_ledger
from tests.fedbn_flower.privacy.asked import Site

from .hospital import model
from .processes import (
    FORGETTING,
    LONG,
    bits,
    marked,
    processes_with,
    runs,
    start_flwr_run,
    tracebacks,
    wait_for,
)

pytestmark = pytest.mark.slow

SITES = 2
COMMON = {
    "num-clients": SITES, "partition": "iid", "dataset": "digits", "local-epochs": 1, "fraction-evaluate": 0
}  # fmt: skip
STAGED = {
    **COMMON, "strategy": "mime", "objective": "mime", "client": "fedbn", "model": "linear", "rounds": 1000
}  # fmt: skip
"""Asks the sites before they train; it is cut off."""
WHOLE = {
    **COMMON, "strategy": "fedyogi", "client": "fedper", "model": "2nn", "rounds": 2, "batch-size": 128,
    "dp": "example", "dp-noise": 2.0, "dp-delta": 1e-4, "dp-seed": 3,
}  # fmt: skip
"""Protects examples: each site has a ledger. What a site remembers of it goes when it is complete."""
APART = 1
"""The site whose SuperExec is a process of its own."""


class TwoKinds(LocalFederation):
    def _start(self, name, command):
        if name != f"site-{APART}":
            return super()._start(name, command)
        super()._start(name, [*command, "--isolation", "process"])
        port = command[command.index("--port") + 1]
        superexec = ["flower-superexec", "--insecure", "--runtime-api-address", f"127.0.0.1:{port}"]
        super()._start(f"superexec-{APART}", superexec)


@pytest.fixture
def sites(tmp_path, undrawn_app):
    shutil.copy(Path(__file__).with_name("staged.py"), tmp_path)
    with marked() as (mark, environment):
        federation = TwoKinds(tmp_path / "federation", SITES, restart_after=1e6)
        federation.environment |= FORGETTING | {"FEDBN_TEST": environment["FEDBN_TEST"]}
        federation.app = undrawn_app
        with federation:
            yield federation, mark


def simulated(keys):
    config = run_config(keys)
    arrays = Federation(config).run(InlineGrid(SITES, config.to_user_config()), [])
    return {name: array.numpy().tobytes() for name, array in arrays.items()}


def check_privacy(federation, folder, cache):
    """The figures are a simulation's, and each site has counted its own examples: epsilon is infinite, since
    who knows the public key could take the noise away. With any bound of the owners nothing is left for
    another run, which has another name, and asks the sites by hand."""
    config = run_config(WHOLE | cache)
    here = simulate(Federation(config), folder / "here", None).as_json()
    assert summary(folder / "whole")["privacy"] == here["privacy"]
    sizes = inputs_of(config).partitions.train.sizes.tolist()
    again = run_config(WHOLE | cache | {"dp-seed": -1, "memory-name": "another"})
    bounds = {"dp_required": True, "dp_max_epsilon": 3.0, "dp_max_delta": 1e-4}
    spent = "dp-max-epsilon: this site's budget of 3 is spent: epsilon is inf over all runs, and would be inf"
    for site, size in enumerate(sizes):
        state = federation.folder / f"site-{site}" / "state"
        ledger = path_of_ledger(state, f"client-{site}").read_text().splitlines()
        lines = [json.loads(line) for line in ledger]
        assert [line["probability"] for line in lines] == [128 / size] * 2
        assert [line["epsilon"] for line in lines] == [None] * 2
        asked = Site(again, partition_id=site, state_dir=str(state), **bounds)
        assert asked.refusal("train", flower_run=2).startswith(spent)


def of_sites(mark, program=""):
    """The processes of each site, or those that run this program."""
    found = {}
    for pid in processes_with(mark):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            home = (Path("/proc") / str(pid) / "environ").read_bytes().decode()
            for site in range(SITES):
                if (f"/site-{site}/flwr" in home or f"/superexec-{site}/flwr" in home) and runs(pid, program):
                    found.setdefault(site, []).append(pid)
    return found


def workers(mark):
    return of_sites(mark, "warm/boot.py")


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def asked(folder, server_round):
    """The process of each site that was asked last to train in a round of the staged run."""
    paths = {site: folder / f"asked-{site}-{server_round}" for site in range(SITES)}
    return {site: int(text) for site, path in paths.items() if path.exists() and (text := path.read_text())}


def test_they_stay_are_replaced_and_leave_nothing_behind(sites, tmp_path, cache_dir, pictures_not_drawn):
    federation, mark = sites
    cache = {"cache-dir": str(cache_dir)}
    keys = STAGED | cache | {"client": f"{tmp_path / 'staged.py'}:Staged"}
    (tmp_path / "wait-2").touch()
    started = {"staged": start_flwr_run(federation, federation.app, tmp_path, "staged", **keys)}

    def happens(condition):
        wait_for(lambda: condition() or started["staged"].poll() is not None)
        assert started["staged"].poll() is None, (tmp_path / "staged.log").read_text()

    happens(lambda: len(asked(tmp_path, 1)) == SITES)  # the app is unpacked everywhere
    started["whole"] = start_flwr_run(federation, federation.app, tmp_path, "whole", **WHOLE | cache)

    # A worker answers one message after the other. Each is killed once while it trains: no answer is missing.
    happens(lambda: len(asked(tmp_path, 2)) == SITES and (tmp_path / "whole").exists())
    first = asked(tmp_path, 2)
    assert asked(tmp_path, 1) == first
    assert all(first[site] in workers(mark)[site] for site in range(SITES))
    for pid in first.values():
        os.kill(pid, signal.SIGKILL)
    happens(lambda: not {*asked(tmp_path, 2).values()} & {*first.values()})
    second = asked(tmp_path, 2)
    (tmp_path / "wait-2").unlink()

    # The other run is complete: nobody needs its workers.
    started["whole"].wait(LONG)
    held = 2 + max(int(path.name.split("-")[2]) for path in tmp_path.glob("asked-*"))
    (tmp_path / f"wait-{held}").touch()
    check_privacy(federation, tmp_path, cache)
    assert bits(tmp_path / "whole") == bits(tmp_path / "here"), (tmp_path / "whole.log").read_text()
    wait_for(lambda: workers(mark) == {site: [pid] for site, pid in second.items()})
    logs = [federation.services[name].log.read_text() for name in ("site-0", f"superexec-{APART}")]
    for log in logs:
        assert log.count("stays for this node's next messages") == len(started) + 1
        assert log.count("the worker ended before it had answered") == 1
        assert log.count("client memory: round") >= 1  # what a client logs is in its node's log
        assert not tracebacks(log)

    # What started them is killed in the middle of a round.
    happens(lambda: len(asked(tmp_path, held)) == SITES)
    assert asked(tmp_path, held) == second
    happens(lambda: summary(tmp_path / "staged")["rounds"] == held - 1)
    for name in ("site-0", f"superexec-{APART}"):
        os.killpg(federation.services[name].process.pid, signal.SIGKILL)
    wait_for(lambda: not workers(mark))
    started["staged"].kill()
    started["staged"].wait()
    federation.stop()
    wait_for(lambda: not of_sites(mark))
    assert summary(tmp_path / "staged")["failures"] == 0
    assert model(tmp_path / "staged") == simulated(STAGED | cache | {"rounds": held - 1})
