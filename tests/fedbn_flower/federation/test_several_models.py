"""Clients with different models: nothing but FedProto's prototypes is shared."""

import numpy as np
import pytest
import torch

from fedbn_flower import load_model
from fedbn_flower.config.making import run_config
from fedbn_flower.core.errors import UserError
from fedbn_flower.federation.federation import Federation
from fedbn_flower.federation.inputs import inputs_of
from fedbn_flower.federation.tasks import local_task
from fedbn_flower.runtime.simulation import simulate

OWN = """
from torch import nn

def wide(spec):
    body = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 200))
    return nn.Sequential(nn.Flatten(), body, nn.Linear(200, spec.outputs))
"""
PAIR = {"strategy": "fedproto", "objective": "fedproto", "client": "alone"}
FIVE = {"num_clients": 5, "partition": "dirichlet:0.5"}


@pytest.fixture
def several(tmp_path, monkeypatch):
    """2NN, and a model of one's own in a folder that has a + in its name; both have 200 features."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c++").mkdir()
    (tmp_path / "c++" / "own.py").write_text(OWN)
    return "2nn+c++/own.py:wide"


def test_clients_have_them_in_turn(configured, several):
    config = configured(**PAIR, **FIVE, model=several)
    sizes = [sum(p.numel() for p in local_task(config, i, {}).model.parameters()) for i in range(5)]
    wide, two_nn = 65 * 256 + 257 * 200 + 201 * 10, 65 * 200 + 201 * 200 + 201 * 10
    assert sizes == [two_nn, wide, two_nn, wide, two_nn]


def test_a_run_its_resume_and_its_models(configured, several, tmp_path, cache_dir):
    keys = {**PAIR, **FIVE, "model": several}
    whole = simulate(Federation(configured(**keys, rounds=4)), tmp_path / "whole", None).as_json()
    assert whole["failures"] == 0
    simulate(Federation(configured(**keys, rounds=2)), tmp_path / "parts", None)
    resumed = configured(**keys, rounds=4, resume=str(tmp_path / "parts"))
    assert simulate(Federation(resumed), tmp_path / "parts", None).as_json()["clients"] == whole["clients"]
    test = inputs_of(run_config({"dataset": "digits", "cache-dir": str(cache_dir)})).whole_split("test")
    images, labels = next(iter(test.load([np.arange(len(test))])))
    for i in range(5):
        model = load_model(tmp_path / "whole", client=i, trust_code=True)
        with torch.no_grad():
            right = (model(images).argmax(1) == labels).double().mean().item()
        assert right == pytest.approx(whole["clients"][str(i)]["accuracy"], abs=1e-9)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"client": "fedper"},
            "expected one model with client 'fedper', or client 'alone', which shares nothing",
        ),
        (
            {"model": "2nn+mlp-bn"},
            "expected models with features of one width, not 2nn 200, mlp-bn 128",
        ),
        ({"model": "2nn+mlp"}, "model: unknown name 'mlp' \\(did you mean 'mlp-bn'"),
    ],
)
def test_what_cannot_be_is_reported(configured, several, keys, words):
    with pytest.raises(UserError, match=words) as caught:
        Federation(configured(**PAIR | {"model": several} | keys))
    assert "\n" not in str(caught.value)
