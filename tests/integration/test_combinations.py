"""Combinations of algorithms, on Ray and under ``flwr run``: the bits of one process."""

import pytest

from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation

from ..fedbn_flower.combinations import COVER, EACH, title
from .processes import bits

pytestmark = pytest.mark.slow

SMALL = {"partition": "dirichlet:0.5", "num_clients": 5, "fraction_train": 0.6, "fine_tune": 2, "fast": "off"}
JOINED = [
    {"client": "fedbn+fedper", "eval_model": "aggregated"},
    {"client": "silobn+ditto", "eval_model": "local"},
    {"client": "fedbn+fedrep", "eval_model": "local"},
]
FURTHER = [pytest.param(names, marks=pytest.mark.exhaustive) for names in COVER[::3] if names not in EACH]


@pytest.mark.usefixtures("pictures_not_drawn", "few_draws")
@pytest.mark.parametrize("names", [*EACH, *FURTHER, *JOINED], ids=title)
def test_the_same_bits_on_ray(configured, tmp_path, pool, names):
    chosen = SMALL | {"head_epochs": 2} | names if "fedrep" in names["client"] else SMALL | names
    here, there = (
        simulate(Federation(configured(**chosen)), tmp_path / name, place).as_json()
        for name, place in (("here", None), ("there", pool))
    )
    assert here["failures"] == 0
    assert bits(tmp_path / "here") == bits(tmp_path / "there")
    assert here["clients"] == there["clients"]


@pytest.mark.exhaustive
def test_the_same_bits_under_flwr_run(configured, tmp_path, cache_dir, flwr_run):
    """Clients without a common model; a combination that has one is `test_one_flwr_run`'s."""
    names = {"strategy": "fedproto", "client": "alone", "objective": "fedproto", "loss": "logit-adjusted"}
    chosen = SMALL | names
    expected = simulate(Federation(configured(**chosen)), tmp_path / "here", None).as_json()
    given = chosen | {"rounds": 2, "cache_dir": cache_dir, "run_dir": tmp_path / "flower"}
    output = flwr_run({key.replace("_", "-"): value for key, value in given.items()}, 5)
    assert (tmp_path / "flower" / "summary.json").exists(), output
    assert bits(tmp_path / "here") == bits(tmp_path / "flower")
    assert len(expected["clients"]) == 5
