"""Differential privacy on real Ray: the noise is added once, to the same bits.

Under ``flwr run`` it is `test_one_flwr_run`'s.
"""

import pytest

from fedbn_flower.privacy import ledger

from .processes import bits

pytestmark = pytest.mark.slow

DP = {"dp": "client", "dp-noise": 1.0, "dp-delta": 1e-3, "dp-seed": 3, "rounds": 3, "partition": "iid"}
LOCAL = {"dp": "local", "model": "linear", "client": "shared", "fraction-train": 0.5}
SECURE = {"fraction-train": 0.5, "dp-secure-noise": True}


def outcomes(folders):
    return {(bits(folder), (folder / ledger.NAME).read_text()) for folder in folders}


@pytest.mark.parametrize(
    "sampled",
    [{**SECURE, "dp-clip": "adaptive", "model": "linear", "client": "shared"}, LOCAL],
    ids=["secure", "local"],
)
def test_the_same_model_and_ledger_on_all_workers(on_all_workers, sampled):
    """With sums on the workers; a Poisson sample of 40 clients and a clip that adapts, or local noise."""
    keys = {**DP, **sampled, "num-clients": 40, "fraction-evaluate": 0.1}
    assert len(outcomes(on_all_workers(keys))) == 1
