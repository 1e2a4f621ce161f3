"""The global model, evaluated by Ray's workers."""

import os

import pytest
import ray

pytest.importorskip("fedbn_flower.runtime.ray")

from fedbn_flower.core.ground.columns import VALIDATION
from fedbn_flower.runtime.ray.worker import Worker
from fedbn_flower.runtime.simulation import make_grid
from fedbn_flower.server.federation import Federation

from ..fedbn_flower.records.helpers import Watching

pytestmark = pytest.mark.slow


class Dying(Worker):
    def evaluate(self, *_):
        os._exit(1)


def test_workers_find_what_one_process_finds_and_one_that_dies_is_replaced(configured, pool, monkeypatch):
    """1,293 validation examples are two batches, a share for each worker."""
    config = configured(client="shared", rounds=3, val_fraction=0.9, fraction_evaluate=0)

    def metrics_on(workers):
        federation, rounds = Federation(config), []
        watching = Watching(lambda result: rounds.append(repr(result.global_metrics)))
        federation.run(make_grid(federation, workers), [watching])
        return rounds

    evaluated, found = pool.evaluated, []

    def noted(*arguments):
        found.append(evaluated(*arguments))
        return found[-1]

    monkeypatch.setattr(pool, "evaluated", noted)
    inline = metrics_on(None)
    assert metrics_on(pool) == inline
    assert [[len(share[VALIDATION]) for share in shares] for shares in found] == [[1, 1]] * 3
    found.clear()
    ray.kill(pool.workers[1])
    pool.workers[1] = ray.remote(num_cpus=1, max_restarts=0)(Dying).remote(*pool._run)
    assert metrics_on(pool) == inline
    assert found[0] is None
    for index in [*pool.starting]:
        pool.welcome(index)  # waits for it; before it is there, this process evaluates
    found.clear()
    assert metrics_on(pool) == inline
    assert [len(shares) for shares in found] == [2, 2, 2]
