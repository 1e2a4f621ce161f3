"""`--backend auto`: when workers pay, and a run that moves to them at any moment."""

import os
from types import SimpleNamespace

import pytest

from fedbn_flower.core.errors import RunFailed, UserError
from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.runtime.pools import pool_for
from fedbn_flower.runtime.ray import auto_grid, background
from fedbn_flower.runtime.ray.auto_grid import AutoGrid, Workload
from fedbn_flower.runtime.ray.background import BackgroundPool
from fedbn_flower.runtime.simulation import make_grid
from fedbn_flower.server.federation import Federation


def test_what_is_left_is_known_from_the_last_whole_round():
    """Ten rounds of two phases; a round of this process takes 3 s, and its first one a second more."""
    work = Workload(rounds=10)
    work.begin_phase(1)
    work.add(3.0)
    assert work.left(done=1, groups=2) == 0  # the first round is short: it is mostly warm-up
    work.begin_phase(1)
    work.add(1.0)
    for seconds, left in ((2.0, 8 * 3.0), (1.0, 8 * 3.0)):  # in the second round, what it has taken so far
        work.begin_phase(2)
        work.add(seconds)
        assert work.left(done=4, groups=4) == pytest.approx(left if seconds == 1.0 else 8 * 2.0)
    work.begin_phase(3)
    work.add(0.5)
    assert work.left(done=1, groups=4) == pytest.approx(1.5 + 7 * 3.0)
    assert work.left(done=1, groups=4, later_runs=2) == pytest.approx(1.5 + (7 + 2 * 10) * 3.0)


def test_a_long_first_round_says_what_is_left_before_it_ends():
    work = Workload(rounds=3)
    work.begin_phase(1)
    work.add(6.0)
    assert work.left(done=2, groups=10) == pytest.approx(24.0 + 2 * 30.0)


class Elsewhere(InlineGrid):
    """Stands in for the grid on Ray's workers."""

    def work_in_groups(self, groups, summed, timeout):
        for group in groups:
            yield from self.answer(group, summed)


class Late:
    """A pool that is ready when it was asked so many times."""

    workers, started, runs_left = range(2), True, 1

    def __init__(self, moment):
        self.moment = moment
        self.asked = 0

    @property
    def ready(self):
        self.asked += 1
        return self if self.asked > self.moment else None


CASES = [
    {"strategy": "scaffold", "objective": "scaffold", "client": "silobn", "num_clients": 5},
    {"strategy": "fedadam", "client": "shared", "num_clients": 16},  # in lockstep, summed by groups
    {"strategy": "fedavg", "client": "fedbn", "mean": "median", "num_clients": 9},  # nothing is summed
    {"strategy": "fedavgm", "client": "silobn", "mean": "centered-clip:0.1", "num_clients": 9},
]


def moving(config, pool):
    federation = Federation(config)
    grid = make_grid(federation, None)
    if pool:
        settings = config.num_clients, grid.run_config, grid.cohort, grid.sums
        grid = AutoGrid(grid, pool, lambda _: Elsewhere(*settings), config.rounds)
    arrays = federation.run(grid, [])
    memories = [grid.client_memory(i) for i in range(config.num_clients)]
    flat = [
        {group: {name: array.tobytes() for name, array in entries.items()} for group, entries in one.items()}
        for one in memories
    ]
    return {name: array.numpy().tobytes() for name, array in arrays.items()}, flat


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["strategy"])
def test_a_run_that_moves_at_any_moment_ends_in_the_same_bits(configured, case):
    """Between two rounds, two phases, two groups of a phase."""
    config = configured(**case, partition="iid", rounds=2)
    expected = moving(config, None)
    never = Late(10**6)
    assert moving(config, never) == expected
    assert never.asked > 4
    for moment in range(0, never.asked, 1 if never.asked < 12 else 3):
        assert moving(config, Late(moment)) == expected, moment


def test_workers_that_would_save_nothing_are_never_started(run, monkeypatch):
    started = []
    monkeypatch.setattr(BackgroundPool, "start", started.append)
    result = run(rounds=3, num_clients=4, partition="iid", backend="auto")
    assert started == []
    assert result.summary["runtime"] == [{"from-round": 1, "backend": "inline"}]


def test_workers_that_pay_are_started_once(configured, monkeypatch):
    monkeypatch.setattr(auto_grid, "START", 0.0)
    config = configured(partition="iid", num_clients=4, rounds=4)
    pool = SimpleNamespace(workers=2, started=False, ready=None, starts=0, runs_left=1)

    def start(why):
        pool.started, pool.starts = True, pool.starts + 1

    pool.start = start
    federation = Federation(config)
    federation.run(AutoGrid(make_grid(federation, None), pool, None, config.rounds), [])
    assert (pool.starts, pool.runs_left) == (1, 0)


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({"backend": "auto"}, BackgroundPool),
        ({"backend": "inline"}, type(None)),
        ({"backend": "auto", "device": "meta"}, type(None)),
    ],
)
def test_the_workers_that_a_configuration_asks_for(configured, keys, kind):
    config = configured().model_copy(update=keys)
    assert type(pool_for(config)) is kind


def test_on_a_machine_that_others_keep_busy_no_workers_start(run, monkeypatch, caplog):
    monkeypatch.setattr(auto_grid, "START", 0.0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (4.0, 0.0, 0.0))
    caplog.set_level("INFO", "flwr.fedbn")
    result = run(rounds=3, num_clients=4, partition="iid", backend="auto")
    assert result.summary["runtime"] == [{"from-round": 1, "backend": "inline"}]
    assert [m for m in caplog.messages if m.startswith("Ray's workers")] == [
        "Ray's workers are not used, everything runs in this process: others keep all 2 cores busy "
        "(load average 4.0)"
    ]


def test_what_cannot_be_sent_stays_here(configured, caplog):
    """A run that need not move goes on without the workers, with a warning."""
    config = configured(partition="iid", num_clients=4, rounds=2)
    pool = BackgroundPool(config)
    pool._pool = SimpleNamespace(workers=range(2), close=lambda: None)
    pool._tried.set()

    def refuse(workers):
        raise UserError("Own@1: cannot be sent to Ray's workers")

    federation = Federation(config)
    federation.run(AutoGrid(make_grid(federation, None), pool, refuse, config.rounds), [])
    assert federation.totals.runtime == [{"from-round": 1, "backend": "inline"}]
    (warning,) = [r.getMessage() for r in caplog.records if "are not used" in r.getMessage()]
    assert warning.endswith("Own@1: cannot be sent to Ray's workers")
    pool.close()


def test_a_ray_whose_workers_do_not_start_is_ended_and_not_used(configured, monkeypatch, caplog):
    ended = []

    class Broken:
        workers = range(2)

        def wait_for_workers(self):
            raise RunFailed("Ray's workers cannot start: no memory")

        def close(self):
            ended.append("closed")

    monkeypatch.setattr(background, "start_ray", lambda config: Broken())
    pool = BackgroundPool(configured())
    assert pool.ready is None
    pool.start("they pay")
    pool.close()
    assert pool.ready is None
    assert ended == ["closed"]
    assert "everything runs in this process: Ray's workers cannot start: no memory" in caplog.text
