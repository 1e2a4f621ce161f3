"""More workers than a machine has cores, or memory for."""

import os

import pytest

from fedbn_flower import cli
from fedbn_flower.core.errors import UserError
from fedbn_flower.runtime import capacity
from fedbn_flower.runtime.capacity import WORKER, available_memory, check_workers


@pytest.fixture
def machine(monkeypatch):
    """Two cores, and memory for ten workers and a half."""
    monkeypatch.setattr(capacity.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(capacity, "available_memory", lambda: 10 * WORKER + WORKER // 2)


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
    monkeypatch.setattr(capacity, "available_memory", lambda: 0)
    check_workers(configured(backend="ray", workers=os.cpu_count()))


@pytest.mark.parametrize("more", [(), ("--seed", "0,1"), ("--search", "client-lr=0.01..0.1")])
def test_so_it_is_before_anything_starts(machine, tmp_path, monkeypatch, capsys, more):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["--workers", "100", "--backend", "ray", "--val-fraction", "0.2", *more]) == 2
    assert capsys.readouterr().err.startswith("error: workers: 100 is not allowed; expected at most 10: ")
    assert not list(tmp_path.iterdir())


def test_a_container_s_limit_counts(tmp_path, monkeypatch):
    """What its cache holds can be had; without a limit the machine's own memory counts."""
    limit, used, stat = (tmp_path / name for name in ("max", "current", "stat"))
    used.write_text("700\n")
    stat.write_text("anon 600\ninactive_file 80\n")
    limit.write_text("1000\n")
    monkeypatch.setattr(capacity, "CGROUPS", [(str(limit), str(used), str(stat))])
    assert available_memory() == 1000 - 700 + 80
    limit.write_text("max\n")
    assert available_memory() > 10_000
