"""The key ``precision``: what it takes, what it changes, a sweep over it, and a run that is resumed."""

import numpy as np
import pytest
import torch
from torch import nn

from fedbn_flower import UserError
from fedbn_flower.job.initial_model import initial_model
from fedbn_flower.models import InputSpec


class OneDtype(nn.Module):
    """Has an operation that there is in float32 only."""

    def __init__(self, spec):
        super().__init__()
        self.layer = nn.Linear(spec.size, spec.outputs)

    def forward(self, x):
        y = self.layer(x.flatten(1))
        if y.dtype != torch.float32:
            raise RuntimeError(f"no kernel for {y.dtype}")
        return y


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_model_that_cannot_compute_in_it_is_refused_before_anything_starts(run, tmp_path, precision):
    keys = {"model": OneDtype, "client": "shared", "run_dir": tmp_path / "run"}
    output = f"^precision: '{precision}' is not allowed; expected 'fp32': .* on this cpu: no kernel for torch"
    with pytest.raises(UserError, match=output) as caught:
        run(**keys, precision=precision)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
    assert run(**keys, rounds=1).summary["failures"] == 0


def test_the_initial_model_is_that_of_float32():
    spec = InputSpec((1, 8, 8), 10)
    expected, found = (
        initial_model("mlp-bn", spec, False, 0, "cpu", name).entries for name in ("fp32", "bf16")
    )
    assert all(np.array_equal(found[name], entry) for name, entry in expected.items())


def test_the_known_optimum_of_a_quadratic_is_neared_in_bf16(run):
    """The check that the model is linear, to rounding, is one in float32."""
    keys = {"dataset": "quadratic:5", "client": "shared", "strategy": "fedavg", "rounds": 5}
    distances = run(**keys, precision="bf16").history["client-mean-distance"].to_numpy()
    assert distances[-1] < 0.9 * distances[0]
