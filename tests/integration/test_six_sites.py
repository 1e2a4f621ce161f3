"""Six real SuperNodes. One is killed, one stopped for a minute, one lies, one says late who it is, and the
clock of one is off; then the server dies, and the run is resumed."""

import csv
import math
import os
import re
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("fedbn_flower.consortium")

from fedbn_flower.config.making import run_config
from fedbn_flower.consortium.local import LocalFederation, wait_until_answers
from fedbn_flower.server.federation import Federation

from .hospital import Missing, model, rounds_done, rounds_trained
from .processes import LONG, ROOT, SOONER, kill_superlink, marked, start_flwr_run, tracebacks, wait_for

pytestmark = pytest.mark.exhaustive

HERE = Path(__file__).parent
SITES, ROUNDS = 6, 9
KILLED, STOPPED, LYING, OFF, LATECOMER = 1, 2, 3, 4, 5
JOB = {
    "num-clients": SITES, "partition": "iid", "client": "fedbn", "local-epochs": 1, "fraction-evaluate": 0.0
}  # fmt: skip


LATE = '''

def answer_partition_id(message: Message, context: Context, answer=answer_partition_id) -> Message:
    """Wait while there is a file of the partition's name."""
    import time
    from pathlib import Path
    while (Path({folder!r}) / f"late-{{partition_id_of(context)}}").exists():
        time.sleep(0.1)
    return answer(message, context)
'''


class Six(LocalFederation):
    """Each checks its clock first, as the unit of the guide does; one's is off while there is a file."""

    def _start(self, name, command):
        environment = self.environment
        paths = [str(HERE / "sooner")]
        if name == f"site-{OFF}":
            paths.insert(0, str(HERE / "off"))
        if name.startswith("site-"):
            check = [sys.executable, "-m", "fedbn_flower.consortium.clock", f"127.0.0.1:{self.port}"]
            words = [shlex.join(map(str, part)) for part in (check, command)]
            command = ["bash", "-c", f"{words[0]} && exec {words[1]}"]
        self.environment = environment | {"PYTHONPATH": os.pathsep.join(paths)}
        try:
            super()._start(name, command)
        finally:
            self.environment = environment


@pytest.fixture
def six(tmp_path):
    ignored = shutil.ignore_patterns(".?*", "__pycache__", "runs", "tests", "build", "dist")
    shutil.copytree(ROOT, tmp_path / "app", ignore=ignored, symlinks=True)
    with (tmp_path / "app/fedbn_flower/core/partition_id.py").open("a") as file:
        file.write(LATE.format(folder=str(tmp_path)))
    settings = tmp_path / "app/strategies/signature.py"
    settings.write_text(settings.read_text().replace('"query_timeout": 120.0', '"query_timeout": 90.0'))
    shutil.copy(HERE / "staged.py", tmp_path)
    for name in (f"late-{LATECOMER}", "clock-is-off"):
        (tmp_path / name).touch()
    with marked() as (_, environment):
        federation = Six(tmp_path / "federation", SITES, restart_after=5)
        federation.environment |= SOONER | {
            "FEDBN_TEST": environment["FEDBN_TEST"],
            "CLOCK_IS_OFF": str(tmp_path / "clock-is-off"),
        }
        with federation:
            yield federation


def start(federation, folder, cache_dir, **keys):
    keys = {
        **JOB,
        "client": f"{folder / 'staged.py'}:Staged",
        "rounds": ROUNDS,
        "cache-dir": cache_dir,
        **keys,
    }
    return start_flwr_run(federation, folder / "app", folder, "run", **keys)


def trained(folder, partition):
    """The rounds in which a site trained; the latecomer also did where its name was not known."""
    rounds = rounds_trained(folder / "run", partition)
    if partition == LATECOMER:
        with (folder / "run" / "clients.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if int(row["partition"]) >= SITES]
        rounds = sorted({*rounds, *(int(row["round"]) for row in rows)})
    return rounds


def test_six_sites_and_all_that_happens_to_them(six, tmp_path, cache_dir):
    """Rounds that a site missed are those of a simulation without its answer; all else has the same bits."""
    run, log, wait = tmp_path / "run", tmp_path / "run.log", tmp_path / "wait"
    sites = [six.services[f"site-{i}"] for i in range(SITES)]
    process = start(six, tmp_path, cache_dir)

    def happens(condition):
        wait_for(lambda: condition() or process.poll() is not None)
        assert process.poll() is None, log.read_text()

    # A clock that is off: the site says so, the server that it waits.
    off = "this machine's clock is 3 h"
    happens(lambda: off in sites[OFF].log.read_text() and "5 connected" in log.read_text())
    (tmp_path / "clock-is-off").unlink()

    # A site that is late: the first round is done without its name.
    late = "did not say within 90 s which partition it holds"
    happens(lambda: late in log.read_text())
    (tmp_path / f"late-{LATECOMER}").unlink()
    happens(lambda: rounds_done(run) >= 1)
    wait.touch()

    # A site that is killed, and comes back when a round was done without it. Another one lies meanwhile.
    held = rounds_done(run) + 1
    happens((tmp_path / f"asked-{KILLED}-{held}").exists)
    sites[KILLED].restart_after = math.inf
    before = len(sites[KILLED].log.read_text())
    os.killpg(sites[KILLED].process.pid, signal.SIGKILL)
    wait.unlink()
    happens(lambda: rounds_done(run) >= held)
    wait.touch()
    sites[KILLED].restart_after = 0
    happens(lambda: "SuperNode ID" in sites[KILLED].log.read_text()[before:])
    wait.unlink()
    happens(lambda: trained(tmp_path, KILLED)[-1] > held)

    # A site that is stopped for a minute, in the middle of its training.
    wait.touch()
    held = rounds_done(run) + 1
    happens((tmp_path / f"asked-{STOPPED}-{held}").exists)
    os.killpg(sites[STOPPED].process.pid, signal.SIGSTOP)
    stopped = time.monotonic()
    wait.unlink()
    happens(lambda: f"train: partition {STOPPED} dropped" in log.read_text())
    wait.touch()  # the others train on when it is back
    time.sleep(max(0, stopped + 60 - time.monotonic()))
    os.killpg(sites[STOPPED].process.pid, signal.SIGCONT)
    time.sleep(20)  # until it has said that it is there
    wait.unlink()
    happens(lambda: trained(tmp_path, STOPPED)[-1] > held)

    # The server dies.
    six.services["superlink"].restart_after = 1
    kill_superlink(six.services["superlink"])
    process.wait(LONG)
    done = rounds_done(run)
    assert done < ROUNDS, log.read_text()
    wait_for(lambda: six.services["superlink"].starts == 2)
    assert wait_until_answers(six.port)
    assert start(six, tmp_path, cache_dir, resume=str(run)).wait(LONG) == 0
    output = log.read_text()
    assert rounds_done(run) == ROUNDS, output

    # A round's memory of a site that lost its answer is of that round: its log says so.
    missing, lost = set(), set()
    for site in range(SITES):
        came_from = set(map(int, re.findall("client memory: round ([0-9]+)", sites[site].log.read_text())))
        for number in set(range(1, ROUNDS + 1)) - set(trained(tmp_path, site)):
            (lost if number in came_from or site == LYING else missing).add((number, site))
    assert {site for _, site in missing | lost} == {KILLED, STOPPED, LYING}
    assert [number for number, site in missing | lost if site == LYING] == [2]
    config = run_config({**JOB, "rounds": ROUNDS, "cache-dir": str(cache_dir)})
    arrays = Federation(config).run(Missing(config, missing, lost), [])
    assert model(run) == {name: array.numpy().tobytes() for name, array in arrays.items()}, (missing, lost)

    # Every event is one line.
    with (run / "failures.csv").open() as file:
        failures = [(int(row["round"]), int(row["partition"])) for row in csv.DictReader(file)]
    assert len(failures) == len(set(failures))
    assert {site for _, site in failures} == {KILLED, STOPPED, LYING}
    assert set(failures) <= missing | lost
    for number, site in failures:
        assert len(re.findall(f"WARNING.*round {number}, train: partition {site} dropped", output)) == 1
    assert output.count("5 connected (minimum required: 6, num-clients)") == 1
    assert len(re.findall(f"WARNING.*{late}", output)) == 1
    assert output.count(f"resuming {run} after round") == 1
    assert "Traceback" not in output
    logs = [site.log.read_text() for site in sites]
    assert all(line.count(off) <= 1 for line in logs[OFF].splitlines())
    assert not any(off in log for site, log in enumerate(logs) if site != OFF)
    assert not any(tracebacks(log) for log in logs)
