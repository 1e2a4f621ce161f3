"""Runs that are called under no_grad, inference_mode or another default dtype are the same runs."""

from contextlib import ExitStack

import pytest
import torch

from tests.surroundings import SET

KEYS = {
    "one by one": {"rounds": 2},
    "in lockstep": {"num_clients": 16, "partition": "iid", "client": "shared", "rounds": 1},
    "fine-tuned": {"objective": "moon", "fine_tune": 2, "rounds": 2},
    "checked": {"precision": "bf16", "metrics": "f1", "rounds": 1},
}


AT_ONCE = (("no_grad", "float64", "autocast"), ("inference_mode", "device"))
"""Of which none undoes what another one does."""


@pytest.mark.slow
@pytest.mark.parametrize("how", KEYS)
def test_a_run_has_the_same_bits_wherever_it_is_called(run, how):
    """All rounds ran, and every client failed."""
    results = {"": run(**KEYS[how])}
    for names in AT_ONCE:
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(SET[name]())
            results[names] = run(**KEYS[how])
    models = {name: result.model(0).state_dict() for name, result in results.items()}
    for name, result in results.items():
        assert result.summary["failures"] == 0, name
        assert result.summary["clients"] == results[""].summary["clients"], name
        assert all(torch.equal(entry, models[""][n]) for n, entry in models[name].items()), name


MODEL = """
import torch
from torch import nn

torch.set_default_dtype(torch.float64)
torch.set_grad_enabled(False)

def model(spec):
    return nn.Sequential(nn.Flatten(), nn.Linear(spec.size, spec.outputs))
"""


def test_a_file_that_sets_a_default_dtype_sets_it_for_nobody(run, tmp_path):
    (tmp_path / "mine.py").write_text(MODEL)
    result = run(model="mine.py:model", client="shared")
    assert result.summary["failures"] == 0
    assert {entry.dtype for entry in result.model().state_dict().values()} == {torch.float32}
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()
