"""Secure aggregation where masks, text and numbers are learnt: as a run without, to the grid's step."""

import numpy as np
import pytest

from tests.quick import some_quick

from ..circles import write_circles
from .grids import run_on

SPEECH = "So foul and fair a day I have not seen. "


def sites_of_masks(folder):
    return {"dataset": str(write_circles(folder / "sites")), "batch_size": 4, "model": "unet"}


def a_play(folder):
    names = ("MACBETH", "BANQUO")
    (folder / "play.txt").write_text("".join(f"{who}:\n{SPEECH * 60}\n\n" for who in names))
    return {"dataset": f"text:{folder / 'play.txt'}", "batch_size": 32}


def a_table(folder):
    rng = np.random.default_rng(0)
    rows = [f"{'ab'[i % 2]},{a:.4f},{2 * a + b / 9:.4f}" for i, (a, b) in enumerate(rng.normal(size=(80, 2)))]
    (folder / "table.csv").write_text("\n".join(["site,a,b", *rows]) + "\n")
    return {
        "dataset": str(folder / "table.csv"), "label_column": "b", "problem": "regression",
        "partition": "natural:site",
    }  # fmt: skip


MODEL = """
import torch
from torch import nn

class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 8, dtype=torch.float64), nn.Linear(8, 10)
        self.norm, self.shift = nn.BatchNorm1d(8), nn.Parameter(torch.zeros(8, dtype=torch.float16))
        self.register_buffer("mask", torch.tensor([0.0] * 7 + [float("-inf")]))
        self.register_buffer("examples", torch.tensor(0, dtype=torch.int32))

    def forward(self, x):
        if self.training:
            self.examples += len(x)
        found = self.norm(self.first(x.flatten(1).double()).float()) + self.shift.float()
        return self.last(torch.softmax(found + self.mask, 1))

def masked(**_):
    return Masked()
"""


def arrays_of_all_kinds(folder):
    """Of 16, 32 and 64 bits, whole numbers, and a mask of infinities, as attention has them in a buffer."""
    (folder / "own.py").write_text(MODEL)
    return {"model": f"{folder / 'own.py'}:masked", "partition": "iid", "fast": "off"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "problem", some_quick([arrays_of_all_kinds, sites_of_masks, a_play, a_table], {1, 3})
)
def test_other_problems_are_summed_too(configured, tmp_path, problem):
    keys = {
        **{
            "num_clients": 2,
            "rounds": 1,
            "strategy": "fedavg",
            "client": "shared",
            "clip_update_norm": 100.0,
        },
        **problem(tmp_path),
    }
    (without, _), (masked, model), (_, plain) = (
        run_on(configured(**keys, **further))
        for further in ({}, {"secagg": "on", "secagg_min": 2}, {"secagg": "plain", "secagg_min": 2})
    )
    assert model == plain
    assert masked[0].metrics == pytest.approx(without[0].metrics, abs=2e-3)
    for name, array in without[0].arrays.items():
        np.testing.assert_allclose(masked[0].arrays[name].numpy(), array.numpy(), atol=2e-4, rtol=1e-4)
