"""Whole runs with local privacy: what leaves a client, what is accounted and where, refused and repeated."""

import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation

from .runs import Stops, charges, of_local, resume, simulated


def killed(*_):
    raise KeyboardInterrupt


def test_a_resumed_run_whose_budget_is_spent_is_refused(configured, tmp_path, monkeypatch):
    """Round 3 was charged twice, and none of it is in the checkpoint of round 2."""
    config = of_local(configured, dp_seed=-1, dp_noise=0, dp_epsilon=8, rounds=4, checkpoint_every=2)
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        simulate(Federation(config), run, None, [Stops(3)])
    monkeypatch.setattr("fedbn_flower.server.federation.Exchange._carried", killed)
    with pytest.raises(KeyboardInterrupt):
        simulated(resume(config, run), run)
    assert [charge["round"] for charge in charges(run)] == [1, 2, 3, 3]
    wanted = r"^rounds: 4 is not allowed; expected 2: the privacy budget is spent at round 3$"
    with pytest.raises(UserError, match=wanted):
        simulated(resume(config, run), run)
