"""Differential privacy on real Ray and under ``flwr run``: the noise is added once, to the same bits."""

import json

import pytest

from fedbn_flower.privacy import keys, ledger

from .processes import bits

pytestmark = pytest.mark.slow

DP = {"dp": "client", "dp-noise": 1.0, "dp-delta": 1e-3, "dp-seed": 3, "rounds": 3, "partition": "iid"}
LOCAL = {"dp": "local", "model": "linear", "client": "fedavg", "fraction-train": 0.5}
EXAMPLE = {"dp": "example", "model": "linear", "client": "fedavg", "num-clients": 3}
SECURE = {"fraction-train": 0.5, "dp-secure-noise": True}
CYCLIC = {"num-clients": 4, "fraction-train": 0.5, "dp-sampling": "cyclic"}


def outcomes(folders):
    return {(bits(folder), (folder / ledger.NAME).read_text()) for folder in folders}


@pytest.mark.parametrize(
    "sampled",
    [{"fraction-train": 0.5, "dp-clip": "adaptive"}, {**SECURE, "dp-clip": "adaptive"}, LOCAL],
    ids=["client", "secure", "local"],
)
def test_the_same_model_and_ledger_on_all_workers(on_all_workers, sampled):
    """With sums on the workers; a Poisson sample of 40 clients and a clip that adapts, or local noise."""
    keys = {**DP, **sampled, "num-clients": 40, "fraction-evaluate": 0.1}
    assert len(outcomes(on_all_workers(keys))) == 1


@pytest.mark.parametrize(
    "sampled",
    [
        {"num-clients": 3, "fraction-train": 0.7},
        {"num-clients": 3, **SECURE},
        CYCLIC,
        EXAMPLE,
        {**LOCAL, "num-clients": 4},
    ],
    ids=["poisson", "secure", "cyclic", "example", "local"],
)
def test_the_same_model_and_ledger_under_flwr_run_and_the_key_nowhere(under_flwr_run, sampled):
    here, flower = under_flwr_run({**DP, **sampled, "strategy": "fedadam"})
    assert len(outcomes([here, flower])) == 1
    assert not list(flower.rglob(keys.NAME))  # of a seed there is none
    assert json.loads((flower / "summary.json").read_text())["privacy"]["published"] == 3
