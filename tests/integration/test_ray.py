"""Our Ray runtime: workers that die or hang, a cluster of two raylets, cohorts."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import ray
from flwr.app import RecordDict

from fedbn_flower import cli
from fedbn_flower.federation.federation import Federation
from fedbn_flower.records.events import Observer
from fedbn_flower.runtime.auto_grid import AutoGrid
from fedbn_flower.runtime.ray.grid import RayGrid
from fedbn_flower.runtime.ray.worker import Worker
from fedbn_flower.runtime.simulation import make_grid
from strategies.aggregation.fold import GROUP

from .processes import bits, run_sim

pytestmark = pytest.mark.slow

UNLUCKY = 3


class Unlucky(Worker):
    """Something happens to it whenever it is to train a certain client."""

    def handle(self, envelopes, stored, *memories):
        for message in envelopes:
            if message.metadata.message_type == "train" and message.metadata.dst_node_id == UNLUCKY + 2:
                self.strike()
        return super().handle(envelopes, stored, *memories)


class Deadly(Unlucky):
    def strike(self):
        os._exit(1)


class Slow(Unlucky):
    def strike(self):
        time.sleep(3600)


@pytest.fixture
def staffed(pool):
    """The pool, its workers of another class for one test."""

    def staff(cls):
        pool._actor = ray.remote(num_cpus=1, max_restarts=0)(cls)
        for i in range(len(pool.workers)):
            pool.replace(i)
        ray.get([worker.process_id.remote() for worker in pool.workers])  # they have started
        return pool

    yield staff
    staff(Worker)


def final_model(config, pool, observers=()):
    federation = Federation(config)
    arrays = federation.run(make_grid(federation, pool), observers)
    return {name: array.numpy().tobytes() for name, array in arrays.items()}


class KillsWorkers(Observer):
    """Kills a worker after round 1, while it is idle, and one a moment later, while it works."""

    def __init__(self, pool):
        self.pool = pool
        self.killed = []
        self.failures = 0

    def on_round(self, result):
        self.failures += result.failures
        if result.server_round == 1:
            self.kill(0)
            threading.Timer(0.3, self.kill, [1]).start()

    def kill(self, index):
        pid = ray.get(self.pool.workers[index].process_id.remote()) if index == 0 else self.second
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.killed.append(pid)


@pytest.mark.parametrize("pair", [("fedyogi", "sgd"), ("feddyn", "feddyn")])
def test_a_killed_worker_changes_nothing(pool, configured, pair):
    strategy, objective = pair
    config = configured(
        strategy=strategy, objective=objective, partition="iid", num_clients=6, rounds=4, local_epochs=8
    )
    killer = KillsWorkers(pool)
    killer.second = ray.get(pool.workers[1].process_id.remote())
    disturbed = final_model(config, pool, [killer])
    assert len(killer.killed) == 2
    assert killer.failures == 0
    assert disturbed == final_model(config, None)
    assert all(ray.get([worker.process_id.remote() for worker in pool.workers]))


def test_a_client_that_kills_its_worker_twice_counts_as_failed(staffed, configured):
    config = configured(partition="iid", num_clients=12, rounds=2, fast="off")
    failures = []

    class Watch(Observer):
        def on_round(self, result):
            failures.append(result.train.failures)
            assert len(result.train.metrics) == 11

    final_model(config, staffed(Deadly), [Watch()])
    assert [list(f) for f in failures] == [[UNLUCKY], [UNLUCKY]]
    assert all("its worker died twice" in f[UNLUCKY] for f in failures)


def test_who_does_not_answer_in_time_is_left_out_and_does_not_hold_up_the_next_round(staffed, configured):
    config = configured(
        partition="iid", num_clients=12, rounds=2, round_timeout=25, fraction_evaluate=0, fast="off"
    )
    rounds = []

    class Watch(Observer):
        def on_round(self, result):
            rounds.append(result)

    final_model(config, staffed(Slow), [Watch()])
    for result in rounds:
        failures = result.train.failures
        assert failures[UNLUCKY] == "no answer came, or the app left it out"
        # Only those whose calls wait behind the one that hangs are lost with it.
        assert len(failures) < 6
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


@pytest.mark.parametrize("names", [("scaffold", "scaffold", "silobn"), ("fedyogi", "sgd", "fedavg")])
def test_a_run_that_moves_to_the_workers_ends_in_the_same_bits(pool, configured, names):
    """Before the first client, and later by one poll each: between rounds, phases and groups."""
    strategy, objective, client = names
    config = configured(
        strategy=strategy, objective=objective, client=client, partition="iid", num_clients=18, rounds=3
    )
    expected = final_model(config, None)
    for moment in (0, 1, 2, 4, 5, 7):
        federation = Federation(config)
        settings = make_grid(federation, None), Ready(pool, moment)
        grid = AutoGrid(*settings, lambda workers: make_grid(Federation(config), workers), config.rounds)
        arrays = federation.run(grid, [])
        assert {name: array.numpy().tobytes() for name, array in arrays.items()} == expected, moment
        assert federation.totals.runtime[-1] == {
            **federation.totals.runtime[-1],
            "backend": "ray",
            "workers": 2,
        }


def test_cohorts_do_not_depend_on_the_workers(pool, configured, tmp_path, cache_dir):
    config = configured(
        strategy="feddyn", objective="feddyn", partition="dirichlet:1", num_clients=3 * GROUP, rounds=3,
        fraction_train=0.7,
    )  # fmt: skip
    inline = final_model(config, None)
    assert final_model(config, pool) == inline
    assert final_model(config.model_copy(update={"fast": "off"}), None) != inline  # lockstep was at work
    alone = RayGrid(pool, config.num_clients, config.to_user_config(), GROUP)
    one = {"workers": pool.workers[:1]} | {
        name: getattr(pool, name) for name in ("replace", "begin", "raylet")
    }
    alone._pool = type("One", (), one)()
    arrays = Federation(config).run(alone, [])
    assert {name: array.numpy().tobytes() for name, array in arrays.items()} == inline


def test_a_grid_can_be_pushed_to_and_pulled_from(pool, configured):
    grid = RayGrid(pool, 100, configured(partition="iid", num_clients=100).to_user_config())
    content = RecordDict()
    messages = [grid.create_message(content, "query.partition_id", node, "") for node in grid.get_node_ids()]
    replies = grid.pull_messages(grid.push_messages(messages))
    assert {reply.content["partition"]["partition-id"] for reply in replies} == set(range(100))


@pytest.fixture
def cluster():
    """Two raylets of one core each on this machine; the address of their cluster."""
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

    try:
        for arguments in (head, [f"--address={address}"]):
            processes.append(
                subprocess.Popen(
                    [ray_command, "start", *arguments, *(common if arguments is head else common[:-1])],
                    start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )
            )  # fmt: skip
            deadline = time.monotonic() + 60
            while len(raylets()) < len(processes) and time.monotonic() < deadline:
                time.sleep(0.1)
        assert len(raylets()) == 2
        yield address
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        shutil.rmtree(scratch, ignore_errors=True)


def test_a_cluster_of_two_raylets_gives_the_same_bits(cluster, tmp_path, cache_dir):
    """Each has room for one worker."""
    common = ("--rounds", 2, "--partition", "iid", "--num-clients", 4, "--cache-dir", cache_dir)
    there = ("--ray-address", cluster, "--workers", 2, "--run-dir", tmp_path / "cluster")
    away = run_sim(*common, *there, "--verbose", "true")
    assert away.returncode == 0, away.stderr
    here = (*common, "--backend", "inline", "--run-dir", tmp_path / "inline")
    assert cli.main([str(word) for word in here]) == 0
    assert bits(tmp_path / "cluster") == bits(tmp_path / "inline")


def test_no_cluster_is_one_line(tmp_path, cache_dir):
    result = run_sim("--ray-address", "127.0.0.1:1", "--run-dir", tmp_path / "no", "--cache-dir", cache_dir)
    assert result.returncode == 2
    assert "ray-address: '127.0.0.1:1' is not allowed; expected HOST:PORT of a running" in result.stderr
    assert result.stderr.count("\n") == 1
