"""Evaluation by windows: what they cover, how they are averaged."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedbn_flower.clients import Segmentation
from fedbn_flower.clients.problems.base import in_windows

SIZES = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=3)


class Squares(nn.Module):
    """A network that sees each value for itself."""

    def forward(self, x):
        return torch.cat([x**2, 1 - x], 1)


@given(SIZES)
def test_a_network_of_single_pixels_gives_the_same_by_windows(pairs):
    windows, sizes = [window for window, _ in pairs], [window + more for window, more in pairs]
    x = torch.randn(2, 1, *sizes)
    torch.testing.assert_close(in_windows(Squares(), x, windows), Squares()(x))


class Number(nn.Module):
    """Counts its calls: the n-th window gives n everywhere."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return torch.full_like(x, self.calls)


def test_overlaps_are_means_weighted_by_a_gaussian_about_each_centre():
    """Windows of 4 in 8 pixels begin at 0, 2 and 4."""
    found = in_windows(Number(), torch.zeros(1, 1, 8), [4])[0, 0].numpy()
    weight = np.maximum(np.exp(-(((np.arange(4) - 1.5) / (4 / 8)) ** 2) / 2), 1e-3)
    total, counted = np.zeros(8), np.zeros(8)
    for number, start in enumerate((0, 2, 4), 1):
        total[start : start + 4] += number * weight
        counted[start : start + 4] += weight
    np.testing.assert_allclose(found, total / counted, rtol=1e-5)
    assert found[[0, -1]].tolist() == pytest.approx([1, 3])


@pytest.mark.parametrize(("size", "calls"), [(4, 1), (5, 2), (6, 2), (7, 3), (8, 3)])
def test_the_last_window_ends_with_the_image(size, calls):
    model = Number()
    in_windows(model, torch.zeros(1, 1, size), [4])
    assert model.calls == calls


def test_a_problem_without_windows_gives_whole_images():
    problem, model = Segmentation(), Number()
    problem.outputs_of(model, torch.zeros(1, 1, 8, 8))
    assert model.calls == 1
    problem.with_windows((4, 4)).outputs_of(model, torch.zeros(1, 1, 8, 8))
    assert (model.calls, problem.windows) == (1 + 9, ())
