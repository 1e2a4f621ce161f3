"""Driven sites: to a real SuperLink they are SuperNodes, and their answers are those of our clients."""

import pytest

pytest.importorskip("fedbn_flower.consortium")

from fedbn_flower.config.making import run_config
from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.server.federation import Federation

from .hospital import model
from .processes import SOONER

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]  # what a benchmark stands on

SITES, ROUNDS = 3, 3


def test_driven_sites_train_the_model_of_a_simulation(tmp_path, cache_dir, undrawn_project, monkeypatch):
    from benchmarks import driven_sites, many_sites  # late: FastAPI

    for name, value in SOONER.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(driven_sites, "BETWEEN_LOOKS", 0.5)
    monkeypatch.setattr(many_sites, "ROOT", undrawn_project)
    row = many_sites.measured(SITES, real=0, rounds=ROUNDS, model="mlp-bn", place=tmp_path)
    cells = row.strip("| ").split(" | ")
    assert cells[:2] == [str(SITES), "0"]
    assert all(float(cell) > 0 for cell in cells[2:7])
    keys = {
        "dataset": "digits", "num-clients": SITES, "partition": "iid", "client": "shared", "local-epochs": 1,
        "rounds": ROUNDS, "cache-dir": str(cache_dir),
    }  # fmt: skip
    config = run_config(keys)
    arrays = Federation(config).run(InlineGrid(SITES, config.to_user_config()), [])
    assert model(tmp_path / "run") == {name: a.numpy().tobytes() for name, a in arrays.items()}
