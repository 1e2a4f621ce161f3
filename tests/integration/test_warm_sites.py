"""Workers of real SuperNodes, with TLS and authentication.

One starts its client processes itself; the SuperExec of the other is a process of its own.
"""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from deploy.local_federation import LocalFederation
from fedbn_flower.config.making import run_config
from fedbn_flower.federation.federation import Federation
from fedbn_flower.runtime.inline import InlineGrid

from .guide import SOONER
from .hospital import model, rounds_done, wait_for
from .processes import ROOT, marked, processes_with

pytestmark = pytest.mark.slow

SITES, ROUNDS = 2, 3
JOB = {
    "num-clients": SITES, "partition": "iid", "client": "fedbn", "local-epochs": 1, "dataset": "digits"
}  # fmt: skip
APART = 1
"""The site whose SuperExec is a process of its own."""


class TwoKinds(LocalFederation):
    def _start(self, name, command):
        if name != f"site-{APART}":
            return super()._start(name, command)
        super()._start(name, [*command, "--isolation", "process"])
        port = command[command.index("--port") + 1]
        superexec = [
            "flower-superexec",
            "--insecure",
            "--runtime-api-address",
            f"127.0.0.1:{port}",
        ]
        super()._start(f"superexec-{APART}", superexec)


@pytest.fixture
def sites(tmp_path):
    ignored = shutil.ignore_patterns(".?*", "__pycache__", "runs", "tests", "build", "dist")
    shutil.copytree(ROOT, tmp_path / "app", ignore=ignored, symlinks=True)
    shutil.copy(Path(__file__).with_name("staged.py"), tmp_path)
    with marked() as (mark, environment):
        federation = TwoKinds(tmp_path / "federation", SITES, restart_after=1e6)
        federation.environment |= SOONER | {"FEDBN_TEST": environment["FEDBN_TEST"]}
        with federation:
            yield federation, mark


def start(federation, folder, name, cache_dir):
    keys = JOB | {"client": f"{folder / 'staged.py'}:Staged", "rounds": ROUNDS}
    keys |= {"cache-dir": str(cache_dir), "run-dir": str(folder / name)}
    words = " ".join(f"{key}={value!r}" for key, value in keys.items())
    command = ["flwr", "run", folder / "app", "local", "--stream", "--run-config", words]
    log = (folder / f"{name}.log").open("w")
    return subprocess.Popen(
        list(map(str, command)), cwd=folder, env=federation.environment, stdout=log, stderr=subprocess.STDOUT
    )


def of_sites(mark, program=""):
    """The processes of each site, or those that run this program."""
    found = {}
    for pid in processes_with(mark):
        try:
            words = (Path("/proc") / str(pid) / "cmdline").read_bytes().decode().split("\0")
            home = (Path("/proc") / str(pid) / "environ").read_bytes().decode()
        except OSError:  # it has ended meanwhile
            continue
        for site in range(SITES):
            at_site = f"/site-{site}/flwr" in home or f"/superexec-{site}/flwr" in home
            if at_site and any(word.endswith(program) for word in words):
                found.setdefault(site, []).append(pid)
    return found


def workers(mark):
    return of_sites(mark, "warm/boot.py")


def test_they_stay_are_replaced_and_leave_nothing_behind(sites, tmp_path, cache_dir):
    federation, mark = sites
    wait = tmp_path / "wait"

    # A run in which every worker is killed once while it trains: no answer is missing.
    process = start(federation, tmp_path, "first", cache_dir)

    def happens(condition):
        wait_for(lambda: condition() or process.poll() is not None, 300)
        assert process.poll() is None, (tmp_path / "first.log").read_text()

    happens(lambda: rounds_done(tmp_path / "first") >= 1)
    before = workers(mark)
    assert {site: len(pids) for site, pids in before.items()} == {0: 1, 1: 1}
    wait.touch()
    held = rounds_done(tmp_path / "first") + 2  # a round is done with the next one's answers
    happens(lambda: all((tmp_path / f"asked-{site}-{held}").exists() for site in range(SITES)))
    for site in range(SITES):
        (tmp_path / f"asked-{site}-{held}").unlink()
        os.kill(before[site][0], signal.SIGKILL)
    happens(lambda: all((tmp_path / f"asked-{site}-{held}").exists() for site in range(SITES)))
    wait.unlink()
    happens(lambda: rounds_done(tmp_path / "first") >= held)
    after = workers(mark)
    assert all(not {*before[site]} & {*after[site]} for site in range(SITES))
    assert process.wait(timeout=300) == 0
    summary = json.loads((tmp_path / "first" / "summary.json").read_text())
    assert (summary["rounds"], summary["failures"]) == (ROUNDS, 0)
    config = run_config({**JOB, "rounds": ROUNDS, "cache-dir": str(cache_dir)})
    arrays = Federation(config).run(InlineGrid(SITES, config.to_user_config()), [])
    assert model(tmp_path / "first") == {name: a.numpy().tobytes() for name, a in arrays.items()}
    logs = [federation.services[name].log.read_text() for name in ("site-0", f"superexec-{APART}")]
    for log in logs:
        assert log.count("the worker ended before it had answered") == 1
        assert log.count("client memory: round") >= ROUNDS - 1  # what a client logs is in its node's log
        assert "Traceback" not in log

    # The run is complete: nobody needs them.
    wait_for(lambda: not workers(mark), 30)

    # What started them is killed in the middle of a round.
    wait.touch()
    for path in tmp_path.glob("asked-*"):
        path.unlink()
    second = start(federation, tmp_path, "second", cache_dir)
    wait_for(lambda: all((tmp_path / f"asked-{site}-1").exists() for site in range(SITES)), 300)
    assert workers(mark).keys() == {0, 1}
    for name in ("site-0", f"superexec-{APART}"):
        os.killpg(federation.services[name].process.pid, signal.SIGKILL)
    wait_for(lambda: not workers(mark), 10)
    second.kill()
    second.wait()
    federation.stop()
    wait_for(lambda: not of_sites(mark), 10)
