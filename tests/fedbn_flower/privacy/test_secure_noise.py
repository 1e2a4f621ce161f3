"""Whole runs with secure noise: what is told of it, and that they are resumed like others."""

import json
from dataclasses import replace

import pytest

from fedbn_flower.privacy import accounts, ledger

from . import test_runs
from .test_runs import DP, MANY, rows, simulated


@pytest.mark.slow
def test_secure_noise_is_told_with_its_own_epsilon(configured, tmp_path):
    values = {**MANY, **DP, "dp_noise": 0.0, "dp_epsilon": 8, "rounds": 3}
    found = simulated(configured(**values, dp_secure_noise=True), tmp_path / "run")["privacy"]
    told = {"mechanism": "discrete Gaussian", "grid-steps": 2**20, "accountant": "Renyi divergences"}
    assert {key: found[key] for key in told} == told
    assert not any("rounding" in line for line in found["outside"])
    plan = accounts.Plan("poisson", 0.5, 20, 3, 1e-3, secure=True)
    assert found["noise"] == accounts.noise_for(8, plan) > accounts.noise_for(8, replace(plan, secure=False))
    by_round = [accounts.epsilon(found["noise"], plan, t) for t in (1, 2, 3)]
    assert [float(row["epsilon"]) for row in rows(tmp_path / "run")] == by_round
    deviations = {float(row["noise-std"]) for row in rows(tmp_path / "run")}
    assert deviations == {found["noise"] / found["clients-a-round"]}
    assert json.loads((tmp_path / "run" / ledger.NAME).read_text().splitlines()[0])["secure"] is True


@pytest.mark.slow
def test_a_resumed_run_has_the_same_bits_and_ledger(configured, tmp_path, monkeypatch):
    monkeypatch.setitem(test_runs.DP, "dp_secure_noise", True)
    resumed = test_runs.test_a_resumed_run_has_the_bits_and_the_ledger_of_one_that_never_stopped
    resumed(configured, tmp_path, "adaptive", "poisson", True, monkeypatch)
