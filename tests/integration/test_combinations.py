"""Combinations of algorithms, on Ray and under ``flwr run``: the bits of one process."""

import pytest

from fedbn_flower.rounds import Federation
from fedbn_flower.runtime.pool import RayPool
from fedbn_flower.simulation import simulate

from ..fedbn_flower.combinations import COVER, title
from .test_runtimes import bits, flwr_run, marked_environment

pytestmark = pytest.mark.slow

__all__ = ["marked_environment"]

SMALL = {"partition": "dirichlet:0.5", "num_clients": 5, "fraction_train": 0.6, "fine_tune": 2, "fast": "off"}
JOINED = [
    {"client": client, "eval_model": eval_model}
    for client in ("fedbn+fedper", "silobn+ditto", "fedbn+fedrep")
    for eval_model in ("aggregated", "local")
]


@pytest.fixture(scope="module")
def pool():
    pool = RayPool(2, verbose=False)
    yield pool
    pool.close()


@pytest.mark.parametrize("names", [*COVER[::3], *JOINED], ids=title)
def test_the_same_bits_on_ray(configured, tmp_path, pool, names):
    chosen = SMALL | {"head_epochs": 2} | names if "fedrep" in names["client"] else SMALL | names
    here, there = (
        simulate(Federation(configured(**chosen)), tmp_path / name, place)
        for name, place in (("here", None), ("there", pool))
    )
    assert here["failures"] == 0
    assert bits(tmp_path / "here") == bits(tmp_path / "there")
    assert here["clients"] == there["clients"]


@pytest.mark.parametrize(
    "names",
    [
        {"strategy": "fedproto", "client": "alone", "objective": "fedproto", "loss": "focal"},
        {"strategy": "fedsat", "client": "silobn+ditto", "objective": "fedsat", "loss": "calc"},
        {"strategy": "fednova", "client": "fedrep", "objective": "moon", "loss": "logit-adjusted"},
    ],
    ids=title,
)
def test_the_same_bits_under_flwr_run(configured, tmp_path, cache_dir, marked_environment, names):
    chosen = SMALL | names
    expected = simulate(Federation(configured(**chosen)), tmp_path / "here", None)
    given = chosen | {"rounds": 2, "cache_dir": cache_dir, "run_dir": tmp_path / "flower"}
    text = {k.replace("_", "-"): v if isinstance(v, int | float) else f"'{v}'" for k, v in given.items()}
    run_config = " ".join(f"{key}={value}" for key, value in text.items())
    result = flwr_run(tmp_path, marked_environment[1], run_config, 5)
    assert (tmp_path / "flower" / "summary.json").exists(), result.stdout + result.stderr
    assert bits(tmp_path / "here") == bits(tmp_path / "flower")
    assert len(expected["clients"]) == 5
