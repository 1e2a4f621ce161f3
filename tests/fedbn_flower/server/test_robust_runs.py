"""Runs under means of whole answers: rounds with too few answers."""

import pytest

from fedbn_flower.core.errors import RunFailed
from tests.quick import some_quick

MEANS = ["krum:0", "multi-krum:0,2", "bulyan:0", "geometric-median", "centered-clip:0.2"]
KEYS = {"num_clients": 8, "partition": "iid", "client": "silobn", "strategy": "fedavgm", "model": "mlp-bn"}


@pytest.mark.slow
@pytest.mark.parametrize("mean", some_quick(["krum:2", "bulyan:1"], {0}))
def test_a_round_with_too_few_answers_leaves_the_model(run, mean, caplog):
    """Some rounds have the seven answers that both need."""
    run(**KEYS | {"mean": mean, "num_clients": 9, "dropout": 0.4}, rounds=4, run_dir="lost")
    assert f"answers are usable, mean '{mean}' needs 7: the model is unchanged" in caplog.text
    assert "in every round" not in caplog.text


@pytest.mark.slow
def test_a_run_in_which_no_round_has_enough(run):
    with pytest.raises(RunFailed, match="too few clients answered usefully in every round; the model was n"):
        run(**KEYS | {"mean": "krum:2", "dropout": 0.8}, rounds=1)
