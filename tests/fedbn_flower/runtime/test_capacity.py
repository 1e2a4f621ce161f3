"""More workers than a machine has cores, or memory for."""

import os

import pytest

from fedbn_flower import cli
from fedbn_flower.core.errors import UserError
from fedbn_flower.runtime import pools
from fedbn_flower.runtime.pools import WORKER, check_workers


@pytest.fixture
def machine(monkeypatch):
    """Two cores, and memory for ten workers and a half."""
    monkeypatch.setattr(pools.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(pools, "available_memory", lambda: 10 * WORKER + WORKER // 2)


def test_more_than_cores_is_warned_of(configured, machine, caplog):
    for workers in (0, 1, 2):
        check_workers(configured(backend="ray", workers=workers))
    assert not caplog.records
    check_workers(configured(backend="ray", workers=10))
    assert [r.getMessage() for r in caplog.records] == [
        "workers: 10 share 2 cores, and are no quicker than 2"
    ]


def test_more_than_memory_bears_is_refused(configured, machine, caplog):
    with pytest.raises(UserError, match="workers: 11 is not allowed; expected at most 10: 3.6 GiB"):
        check_workers(configured(backend="ray", workers=11))
    check_workers(configured(backend="inline", workers=11))
    check_workers(configured(backend="ray", workers=11, ray_address="10.0.0.1:6379"))
    assert not caplog.records


def test_one_a_core_is_never_refused(configured, monkeypatch):
    monkeypatch.setattr(pools, "available_memory", lambda: 0)
    check_workers(configured(backend="ray", workers=os.cpu_count()))


@pytest.mark.parametrize("more", [(), ("--seed", "0,1"), ("--search", "client-lr=0.01..0.1")])
def test_so_it_is_before_anything_starts(machine, tmp_path, monkeypatch, capsys, more):
    if more:
        pytest.importorskip("fedbn_flower.search" if "--search" in more else "fedbn_flower.sweeps")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["--workers", "100", "--backend", "ray", "--val-fraction", "0.2", *more]) == 2
    assert capsys.readouterr().err.startswith("error: workers: 100 is not allowed; expected at most 10: ")
    assert not list(tmp_path.iterdir())
