"""Our Ray runtime: workers that die or hang, a cluster of two raylets, cohorts."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from flwr.app import RecordDict
from safetensors.numpy import load_file

pytest.importorskip("fedbn_flower.runtime.ray")

from fedbn_flower import cli
from fedbn_flower.records.events import Observer
from fedbn_flower.results.run_folder import RunFolder
from fedbn_flower.runtime.pools import MEMORY
from fedbn_flower.runtime.ray import grid as ray_grid
from fedbn_flower.runtime.ray.auto_grid import AutoGrid
from fedbn_flower.runtime.ray.grid import RayGrid
from fedbn_flower.runtime.ray.pool import RayPool, breakpoints_as_before, sigterm_handled_as_before
from fedbn_flower.runtime.simulation import make_grid, simulate
from fedbn_flower.server.federation import Federation
from strategies.aggregation.fold import GROUP

from .processes import ROOT, STUBS, bits, end, marked, wait_for

pytestmark = pytest.mark.slow

UNLUCKY = 3
OWN = """
import os, time
from clients import FedAvgClient

class Deadly(FedAvgClient):
    def fit(self, parameters, config):
        if self.task.seed[1] == 3:
            os._exit(1)
        return super().fit(parameters, config)

class Places(FedAvgClient):
    def still_in(self, server_round):
        with open(os.path.join(os.path.dirname(__file__), "places"), "a") as file:
            file.write(f"{self.task.seed[1]} {os.environ.get('CUDA_VISIBLE_DEVICES')}\\n")
        return super().still_in(server_round)

class Slow(FedAvgClient):
    def fit(self, parameters, config):
        if self.task.seed[1] == 3 and config["server-round"] == 1:
            time.sleep(3600)
        return super().fit(parameters, config)
"""
"""Clients to whose worker something happens where one of them trains, or who say where it is."""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    return lambda name: f"{tmp_path / 'own.py'}:{name}"


def final_model(config, pool, observers=()):
    federation = Federation(config)
    arrays = federation.run(make_grid(federation, pool), observers)
    return {name: array.numpy().tobytes() for name, array in arrays.items()}


class KillsWorkers(Observer):
    """Kills a worker after round 1, while it is idle, and the other in round 3, while it works: no client's
    worker dies twice."""

    def __init__(self, pool):
        self.pool = pool
        self.killed = []
        self.failures = 0

    def on_round(self, result):
        self.failures += result.failures
        if result.server_round == 1:
            self.kill(0)
        if result.server_round == 2:
            threading.Timer(0.3, self.kill, [1]).start()

    def kill(self, index):
        pid = ray.get(self.pool.workers[index].process_id.remote()) if index == 0 else self.second
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.killed.append(pid)


def test_a_killed_worker_changes_nothing(pool, configured):
    config = configured(
        strategy="feddyn",
        objective="feddyn",
        partition="iid",
        num_clients=6,
        rounds=4,
        local_epochs=8,
        batch_size=32,
    )
    killer = KillsWorkers(pool)
    killer.second = ray.get(pool.workers[1].process_id.remote())
    disturbed = final_model(config, pool, [killer])
    assert len(killer.killed) == 2
    assert killer.failures == 0
    assert disturbed == final_model(config, None)
    assert all(ray.get([worker.process_id.remote() for worker in pool.workers]))


COUNTS = """
import torch
from torch import nn

class Counts(nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.layer, self.calls = nn.Linear(spec.size, spec.outputs), 0
        self.register_buffer("seen", torch.zeros(1), persistent=False)

    def forward(self, x):
        self.calls += 1
        self.seen += 0.1
        return self.layer(x.flatten(1)) * (1 + self.calls / 10 + self.seen.clone())
"""
"""A network whose outputs go by what is in no state dict: an attribute, a buffer that does not persist."""


def test_what_a_network_keeps_for_itself_does_not_depend_on_who_works_where(
    pool, one_worker, configured, tmp_path
):  # fmt: skip
    """Clients one after the other, on one worker, on two, and on both sides of a stop."""
    (tmp_path / "own.py").write_text(COUNTS)
    keys = {"model": f"{tmp_path / 'own.py'}:Counts", "partition": "iid", "num_clients": 4, "batch_size": 64}
    config, run = configured(**keys, rounds=2), tmp_path / "run"
    expected = final_model(config, None)
    for workers in (one_worker, pool):
        assert final_model(config, workers) == expected
    simulate(Federation(configured(**keys, rounds=1)), run, None)
    simulate(Federation(configured(**keys, rounds=2, resume=str(run))), run, None)
    assert {name: array.tobytes() for name, array in load_file(run / "model.safetensors").items()} == expected


def test_a_client_that_kills_its_worker_twice_counts_as_failed(pool, configured, own):
    config = configured(client=own("Deadly"), partition="iid", num_clients=12, rounds=1, fast="off")
    results = []

    class Watch(Observer):
        def on_round(self, result):
            results.append(result.train)

    final_model(config, pool, [Watch()])
    assert [list(train.failures) for train in results] == [[UNLUCKY]]
    assert "its worker died twice" in results[0].failures[UNLUCKY]
    assert len(results[0].metrics) == 11


def test_who_does_not_answer_in_time_is_left_out_and_does_not_hold_up_the_next_round(pool, configured, own):
    common = {"partition": "iid", "num_clients": 12, "fraction_evaluate": 0, "fast": "off"}
    final_model(configured(**common, rounds=1), pool)  # the workers have all that they need
    config = configured(client=own("Slow"), rounds=2, round_timeout=10, **common)
    rounds = []

    class Watch(Observer):
        def on_round(self, result):
            rounds.append(result)

    final_model(config, pool, [Watch()])
    assert rounds[0].train.failures[UNLUCKY] == "no answer came, or the app left it out"
    for result in rounds:
        # Only those whose calls wait behind the one that hangs are lost with it.
        assert len(result.train.failures) < 6
        assert result.seconds < 600  # it hangs for an hour


class Ready:
    """The pool, ready when it was asked so many times."""

    started, runs_left = True, 1

    def __init__(self, pool, moment):
        self.pool, self.workers, self.left = pool, len(pool.workers), moment

    @property
    def ready(self):
        self.left -= 1
        return self.pool if self.left < 0 else None


@pytest.mark.parametrize(
    ("strategy", "objective", "client", "moment"),
    [("scaffold", "scaffold", "silobn", 2), ("fedyogi", "plain", "shared", 4)],
)
def test_a_run_that_moves_to_the_workers_ends_in_the_same_bits(
    pool, configured, strategy, objective, client, moment
):
    """Between rounds, phases or groups: `test_auto_grid` tries all."""
    config = configured(
        strategy=strategy, objective=objective, client=client, partition="iid", num_clients=18, rounds=3
    )
    expected = final_model(config, None)
    federation = Federation(config)
    settings = make_grid(federation, None), Ready(pool, moment)
    grid = AutoGrid(*settings, lambda workers: make_grid(Federation(config), workers), config.rounds)
    arrays = federation.run(grid, [])
    assert {name: array.numpy().tobytes() for name, array in arrays.items()} == expected
    assert federation.totals.runtime[-1].items() >= {"backend": "ray", "workers": 2}.items()


def test_half_precision_has_the_same_bits_on_the_workers(pool, configured):
    keys = {"client": "shared", "partition": "iid", "num_clients": 10}
    half, full = (configured(**keys, precision=precision) for precision in ("bf16", "fp32"))
    assert final_model(half, pool) == final_model(half, None) != final_model(full, None)


def test_the_losses_of_candidates_are_asked_of_the_workers(pool, configured, monkeypatch):
    """Of clients with a memory, in the object store as that of many clients, and where others have none."""
    monkeypatch.setattr(ray_grid, "HERE", 0)
    config = configured(
        strategy="fedadam", client="fedbn", partition="dirichlet:1", num_clients=12, rounds=3,
        fraction_train=0.25, selection="power-of-choice:8",
    )  # fmt: skip
    assert final_model(config, pool) == final_model(config, None)


def test_cohorts_do_not_depend_on_the_workers(pool, one_worker, configured, tmp_path, cache_dir):
    config = configured(
        strategy="feddyn", objective="feddyn", partition="dirichlet:1", num_clients=3 * GROUP, rounds=3,
        fraction_train=0.7,
    )  # fmt: skip
    inline = final_model(config, None)
    assert final_model(config, pool) == inline
    assert final_model(config.model_copy(update={"fast": "off"}), None) != inline  # lockstep was at work
    alone = RayGrid(pool, config.num_clients, config.to_user_config(), GROUP)
    alone._pool = one_worker
    arrays = Federation(config).run(alone, [])
    assert {name: array.numpy().tobytes() for name, array in arrays.items()} == inline


def test_cohorts_are_shared_among_gpus(configured, own, tmp_path, monkeypatch):
    """Two of a Ray that only counts them: a cohort is on one, each has some, and the bits are the same. By
    default there is a worker for each."""
    monkeypatch.setenv("RAY_prestart_worker_first_driver", "0")  # none of those are ours
    monkeypatch.setenv("PYTHONPATH", str(STUBS))
    config = configured(client=own("Places"), partition="iid", num_clients=4 * GROUP, rounds=1)
    places = tmp_path / "places"
    expected = final_model(config, None)
    with sigterm_handled_as_before(), breakpoints_as_before():
        ray.init(address="local", num_cpus=4, num_gpus=2, include_dashboard=False, log_to_driver=False)
    try:
        pool = RayPool(0, verbose=False, on_gpus=True)
        assert len(pool.workers) == 2
        pool.close()
        places.unlink()
        pool = RayPool(4, verbose=False, on_gpus=True)
        assert len(pool.workers) == 4
        assert final_model(config, pool) == expected
        pool.close()
        lines = [line.split() for line in places.read_text().splitlines()]
        of_cohorts = [{gpu for client, gpu in lines if int(client) // GROUP == i} for i in range(1, 4)]
        assert [*map(len, of_cohorts)] == [1] * 3  # the first is also that of trials, which all make
        assert set.union(*of_cohorts) == {"0", "1"}
    finally:
        ray.shutdown()


def test_evaluations_in_lockstep_do_not_depend_on_the_workers(pool, configured):
    """Eleven clients are in cohorts of six and five, which two workers would not share alike."""
    config = configured(
        client="fedbn", partition="iid", num_clients=11, rounds=2, fraction_train=1.0, fast="always"
    )
    found = []

    class Watch(Observer):
        def on_round(self, result):
            found.append(result.evaluate.metrics)

    assert final_model(config, pool, [Watch()]) == final_model(config, None, [Watch()])
    assert found[:2] == found[2:]
    final_model(config.model_copy(update={"fast": "off"}), None, [Watch()])
    assert found[4] != found[2]


def test_a_grid_can_be_pushed_to_and_pulled_from(pool, configured):
    grid = RayGrid(pool, 100, configured(partition="iid", num_clients=100).to_user_config())
    content = RecordDict()
    messages = [grid.create_message(content, "query.partition_id", node, "") for node in grid.get_node_ids()]
    replies = grid.pull_messages(grid.push_messages(messages))
    assert {reply.content["partition"]["partition-id"] for reply in replies} == set(range(100))


def test_no_cluster_is_one_line(tmp_path, cache_dir, capsys):
    words = ["--ray-address", "127.0.0.1:1", "--run-dir", str(tmp_path / "no"), "--cache-dir", str(cache_dir)]
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert "ray-address: '127.0.0.1:1' is not allowed; expected HOST:PORT of a running" in error
    assert error.count("\n") == 1


def test_workers_have_the_environment_that_is_theirs_and_this_process_the_one_it_had(pool):
    """Those that replace others, too."""
    pool.replace(1)
    for pid in ray.get([worker.process_id.remote() for worker in pool.workers]):
        given = Path(f"/proc/{pid}/environ").read_text().split("\0")
        assert {f"{name}={value}" for name, value in MEMORY.items()} <= set(given)
        assert any(word.startswith(f"PYTHONPATH={ROOT}") for word in given)
        assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, 0)
    assert not {*MEMORY, "PYTHONBREAKPOINT"} & set(os.environ)


@pytest.fixture(scope="module")
def cluster():
    """Two raylets of one core each on this machine, of which the last test kills one; the address of their
    cluster."""
    scratch = tempfile.mkdtemp(prefix="ray")  # short: the paths of Unix sockets may not be long
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    ray_command = str(Path(sys.executable).parent / "ray")
    common = ["--num-cpus=1", "--block", "--disable-usage-stats", f"--temp-dir={scratch}"]
    head = [
        "--head",
        f"--port={address.split(':')[1]}",
        "--node-ip-address=127.0.0.1",
        "--include-dashboard=false",
    ]
    processes = []

    def raylets():
        """The sockets of those that have come up."""
        return list(Path(scratch).glob("session_2*/sockets/raylet*"))

    with marked() as (mark, environment):
        environment["RAY_prestart_worker_first_driver"] = "0"  # none of those are ours
        for arguments in (head, [f"--address={address}"]):
            processes.append(
                subprocess.Popen(
                    [ray_command, "start", *arguments, *(common if arguments is head else common[:-1])],
                    env=environment, start_new_session=True,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )
            )  # fmt: skip
            wait_for(lambda: len(raylets()) == len(processes), processes[-1])
        yield SimpleNamespace(address=address, processes=processes)
        end(mark, signal.SIGKILL)
    for process in processes:
        process.wait()
    shutil.rmtree(scratch, ignore_errors=True)


def test_a_machine_without_the_data_is_one_line_before_the_first_round(
    cluster, tmp_path, cache_dir, monkeypatch, capsys
):
    """Another digest here stands for other data there."""
    check = RayPool.check_data
    monkeypatch.setattr(RayPool, "check_data", lambda pool, key, value, _: check(pool, key, value, "0" * 64))
    words = ("--ray-address", cluster.address, "--cache-dir", cache_dir, "--run-dir", tmp_path / "no")
    assert cli.main([str(word) for word in words]) == 2
    error = capsys.readouterr().err
    assert re.match(
        r"error: dataset: 'scanners' is not allowed; expected data that machine '[\d.]+' of", error
    )
    assert error.count("\n") == 1


def test_a_machine_that_dies_in_a_round_costs_no_bits_and_no_memory(
    cluster, tmp_path, cache_dir, monkeypatch, capsys
):
    """Of two raylets, each of which has room for one worker. Its clients are asked again, of the other."""
    common = ("--rounds", 5, "--partition", "iid", "--num-clients", 8, "--cache-dir", cache_dir)
    assert (
        cli.main([str(word) for word in (*common, "--backend", "inline", "--run-dir", tmp_path / "here")])
        == 0
    )
    on_round, killed = RunFolder.on_round, []

    def kill_the_other(self, result):
        on_round(self, result)
        if result.server_round == 3:
            killed.append(os.killpg(cluster.processes[1].pid, signal.SIGKILL))

    monkeypatch.setattr(RunFolder, "on_round", kill_the_other)
    there = ("--ray-address", cluster.address, "--workers", 2, "--run-dir", tmp_path / "there")
    assert cli.main([str(word) for word in (*common, *there)]) == 0
    assert len(killed) == 1
    runtime = json.loads((tmp_path / "there" / "summary.json").read_text())["runtime"]
    assert [(part["backend"], part["workers"]) for part in runtime] == [("ray", 2)]
    assert bits(tmp_path / "there") == bits(tmp_path / "here")
    assert "(raylet)" not in capsys.readouterr().out
