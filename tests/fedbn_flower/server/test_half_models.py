"""Models whose parameters are bfloat16, float16 or float64: they train, and travel exactly."""

import numpy as np
import pytest
import torch
from torch import nn

from clients.modules.arrays import to_array

from ..records.helpers import Watching, entries


def network(spec):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(spec.size, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, spec.outputs)
    )


def brain(spec):
    return network(spec).to(torch.bfloat16)


class CastsItself(nn.Module):
    """As models of half precision often do: inputs are scaled in float32, then cast."""

    def __init__(self, spec):
        super().__init__()
        self.head = nn.Linear(spec.size, spec.outputs).to(torch.bfloat16)

    def forward(self, x):
        assert x.dtype == torch.float32
        return self.head((x.flatten(1) * 2).to(torch.bfloat16))


MODELS = {
    "bfloat16": brain,
    "float16": lambda spec: network(spec).half(),
    "float64": lambda spec: network(spec).double(),
}


@pytest.mark.slow
def test_they_learn_what_the_float32_model_learns(run):
    accuracies = []
    for dtype, model in {"float32": network, **MODELS}.items():
        result = run(model=model, rounds=3, batch_size=32)
        assert result.summary["failures"] == 0
        accuracies.append(result.summary["client-mean"]["accuracy"])
        assert accuracies[-1] == pytest.approx(accuracies[0], abs=0.03)
        assert {str(p.dtype) for p in result.model(0).parameters()} == {f"torch.{dtype}"}


def test_a_model_that_casts_its_inputs_gets_them_as_they_are(run):
    result = run(model=CastsItself, client="shared")
    assert result.summary["failures"] == 0
    assert result.model()(torch.ones(2, 1, 8, 8)).dtype == torch.float32


def test_a_bfloat16_is_exact_in_float32():
    values = torch.tensor([1.0, 1 + 2**-7, -3.0e38, 1e-40, float("inf")], dtype=torch.bfloat16)
    array = to_array(values)
    assert array.dtype == np.float32
    assert torch.equal(torch.from_numpy(array).to(torch.bfloat16), values)


def test_an_array_is_a_copy_in_c_order():
    values = torch.arange(6.0).view(2, 3)
    array, turned = to_array(values), to_array(values.T)
    values.zero_()
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert turned.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert turned.flags.c_contiguous
    assert to_array(torch.tensor(7)).shape == ()


def on_grid(array):
    return np.array_equal(torch.from_numpy(array.copy()).to(torch.bfloat16).float().numpy(), array)


def test_the_mean_of_two_models_is_not_rounded_and_rounding_is_no_update(run):
    """The server keeps float32: the mean of two bfloat16 is between two of them, mostly.

    From round 2 on the rate is 0.05e-30, so nobody moves. Clients begin from the rounded model, and what
    rounding took would be an update of theirs, if it were not relative to what they got.
    """
    models = []
    keys = {"strategy": "fedavg", "client": "silobn", "client_lr_schedule": "exponential:1e-30", "rounds": 3}
    result = run(model=brain, observers=[Watching(lambda round_: models.append(entries(round_)))], **keys)
    first, _, last = models
    assert not all(map(on_grid, first.values()))
    assert all(np.array_equal(entry, last[name]) for name, entry in first.items())
    sent = result.history["bytes-sent"].iloc[0]
    assert sent == 4 * 2 * sum(entry.size for entry in first.values())  # to two clients, twice


KINDS = [
    {"strategy": "scaffold", "objective": "scaffold", "client": "silobn"},
    {"objective": "fedsam", "client": "fedper"},
    {"client": "ditto", "fine_tune": 2},
    {"strategy": "fedproto", "objective": "fedproto", "client": "alone"},
    {"compress": "topk:0.1", "client_optimizer": "adamw", "client_lr": 0.001},
    {"compress": "qsgd:4", "mean": "median", "eval_model": "local"},
    {"num_clients": 16, "partition": "iid", "client": "shared", "metrics": "auroc,f1"},
    {"freeze": "1", "unfreeze_at": 2, "client": "shared", "precision": "bf16"},
]


@pytest.mark.slow
@pytest.mark.parametrize("keys", KINDS, ids=lambda keys: "-".join(map(str, keys.values())))
def test_bfloat16_goes_with_everything(run, keys):
    assert run(model=brain, **keys).summary["failures"] == 0
