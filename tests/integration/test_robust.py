"""Robust means and attacks on Ray's workers: the same bits as in this process; what ``flwr run`` refuses."""

import json

import pytest

from fedbn_flower.config.making import run_config
from fedbn_flower.core.errors import UserError
from fedbn_flower.runtime.server_app import _run
from fedbn_flower.site.inputs import inputs_at

from ..quick import some_quick
from .processes import bits

KEYS = {
    "num-clients": 11,
    "partition": "dirichlet:1",
    "model": "mlp-bn",
    "client": "silobn",
    "rounds": 2,
    "local-epochs": 1,
    "fast": "off",
    "dropout": 0.1,
}
MEANS = ("bulyan:1", "median", "krum:2", "multi-krum:1,4", "geometric-median", "centered-clip:0.3")
ATTACKS = ("backdoor:3+sign-flip:2", "min-max", "gaussian:0.1", "random-labels")


@pytest.mark.slow
@pytest.mark.parametrize("mean", some_quick(MEANS, {0}))
def test_a_robust_mean_on_all_workers(mean, on_all_workers):
    folders = on_all_workers(KEYS | {"mean": mean}, summed=False)
    assert len({bits(folder) for folder in folders}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("attack", some_quick(ATTACKS, {0, 3}))
def test_an_attack_on_all_workers(attack, on_all_workers):
    folders = on_all_workers(KEYS | {"attack": attack}, summed=False)
    assert len({bits(folder) for folder in folders}) == 1
    said = [json.loads((folder / "summary.json").read_text())["attack"] for folder in folders]
    assert said[0] == said[1]
    assert said[0]["answers"] > 0


@pytest.mark.parametrize("attack", ["sign-flip:1", "min-max", "label-flip+ipm:1"])
def test_under_flwr_run_only_examples_are_attacked(attack):
    config = run_config({"dataset": "digits", "attack": attack})
    with pytest.raises(UserError, match="expected one of label-flip, random-labels, backdoor under flwr run"):
        _run(None, config)


def test_a_node_with_data_of_its_own_poisons_nothing():
    config = run_config({"dataset": "shape:1x8x8:10", "attack": "label-flip"})
    with pytest.raises(UserError, match="attack: 'label-flip' is not allowed; expected 'none' at a node"):
        inputs_at(config, {"data-path": "site"})
