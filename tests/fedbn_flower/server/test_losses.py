"""A loss by name, from a file or as an object; what it does not go with; and who then trains in lockstep."""

import json

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file
from torch import nn

from clients import Loss, setting
from clients.modules.head import head_of
from fedbn_flower.cli.parser import parse
from fedbn_flower.core.errors import UserError
from fedbn_flower.job.checks.model_fit import check_fit
from fedbn_flower.job.initial_model import build_model
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.models import MODELS, InputSpec

OWN = """
from clients import LOSSES, Loss, setting

class Scaled(Loss):
    factor: float = setting(1.0, gt=0, description="factor on the usual loss")
    requires = {"client-optimizer": {"sgd"}}

    def __call__(self, output, targets, reduction="mean"):
        return self.factor * super().__call__(output, targets, reduction)

class Soft(LOSSES["label-smoothing"]):
    smoothing = 0.5

class Other:
    pass
"""


class Scaled(Loss):
    factor: float = setting(1.0, gt=0)

    def __call__(self, output, targets, reduction="mean"):
        return self.factor * super().__call__(output, targets, reduction)


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)


def model_of(folder):
    return load_file(folder / "model.safetensors")


def same(a, b, atol=0.0):
    return all(np.allclose(entry, b[name], rtol=0, atol=atol) for name, entry in a.items())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--loss focal --smoothing 0.1", "smoothing: 0.1 is not used by strategy 'fedyogi'"),
        ("--smoothing 0.1", "it is a setting of label-smoothing"),
        ("--loss own.py:Other", "loss: 'own.py:Other' is not allowed; expected a subclass of Loss"),
        ("--loss own.py:Scaled --factor 0", "factor: '0' is not allowed; expected a number"),
        ("--loss own.py:Scaled --client-optimizer adam", "client-optimizer: 'adam' is not allowed"),
    ],
)
def test_what_does_not_go_is_one_line(own, arguments, told):
    with pytest.raises(UserError) as caught:
        parse(arguments.split())
    assert "\n" not in str(caught.value)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("loss", "focal"),
        ("loss", "own.py:Soft"),
        *(("objective", n) for n in ("fedrs", "fedlc", "fedntd", "fedgkd")),
    ],
)
def test_what_is_about_classes_is_refused_where_there_are_none(own, configured, tmp_path, key, name):
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    pd.DataFrame({"a": x, "y": 2 * x + 0.5}).to_csv(tmp_path / "line.csv", index=False)
    data = {"dataset": str(tmp_path / "line.csv"), "label_column": "y", "model": "linear", "partition": "iid"}
    check_fit(inputs_of(configured(**data)))
    with pytest.raises(UserError) as caught:
        check_fit(inputs_of(configured(**data, **{key: name})))
    told = f"{key}: '{name}' is not allowed; expected another one: it needs classes, and "
    assert str(caught.value).startswith(told)
    assert str(caught.value).endswith("has numbers")


@pytest.mark.slow
def test_a_loss_of_ones_own_is_one_file_or_a_class(run, own, tmp_path):
    """Half the loss at twice the rate is the same under SGD."""
    keys = {"strategy": "fedavg", "rounds": 1, "fast": "off"}
    half = {"loss": "own.py:Scaled", "factor": 0.5, "client_lr": 0.2}
    plain, found = run(**keys, client_lr=0.1), run(**keys, **half)
    config = json.loads((found.folder / "config.json").read_text())
    assert (config["loss"], config["factor"]) == (f"{tmp_path}/own.py:Scaled", 0.5)
    assert same(model_of(plain.folder), model_of(found.folder), atol=1e-5)
    of_class = run(**keys, **half | {"loss": Scaled})
    assert same(model_of(of_class.folder), model_of(found.folder))
    with pytest.raises(UserError, match="loss: .* is not allowed; expected a subclass of Loss"):
        run(loss=dict, **keys)


@pytest.mark.parametrize("objective", ["moon", "feddecorr"])
def test_what_is_of_features_needs_something_before_the_head(refusal, objective):
    line = refusal(objective=objective, model="linear", client="shared")
    assert line.startswith(f"objective: '{objective}' is not allowed; ")
    assert "nothing is trained" in line


def test_a_head_is_where_the_model_says_beneath_a_softmax_too(monkeypatch):
    def two_layered(spec):
        model = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 5), nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 10))
        )
        model.head = "2"
        return model

    monkeypatch.setitem(MODELS, "two-layered", two_layered)
    for softmax, head in ((False, "2"), (True, "0.2")):
        assert head_of(build_model("two-layered", InputSpec((1, 8, 8), 10), softmax, 0))[0] == head
