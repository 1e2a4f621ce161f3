"""Adaptive gradient clipping, by hand and against timm's."""

import numpy as np
import pytest
import torch
from torch import nn

from clients.modules.clipping import before_head, clip_adaptively

from ..helpers import small_model


def with_gradient(values, gradient):
    p = nn.Parameter(torch.tensor(values))
    p.grad = torch.tensor(gradient)
    return p


def test_each_output_by_itself():
    """Rows of norm 5, 0.0001 (so 0.001) and 10, at 0.1: gradients of norm 0.5, 0.0001 and 1 at most."""
    p = with_gradient([[3.0, 4.0], [1e-4, 0.0], [6.0, 8.0]], [[3.0, 4.0], [0.0, 2.0], [0.6, 0.0]])
    clip_adaptively([p], 0.1)
    np.testing.assert_allclose(p.grad.numpy(), [[0.3, 0.4], [0.0, 1e-4], [0.6, 0.0]], rtol=1e-6)


def test_a_vector_is_one_unit_and_none_is_skipped():
    vector, without = with_gradient([3.0, 4.0], [0.0, 10.0]), nn.Parameter(torch.ones(2))
    clip_adaptively([without, vector], 0.2)
    np.testing.assert_allclose(vector.grad.numpy(), [0.0, 1.0], rtol=1e-6)


def test_zero_gradients_stay_zero():
    p = with_gradient([[0.0, 0.0]], [[0.0, 0.0]])
    clip_adaptively([p], 0.1)
    assert p.grad.tolist() == [[0, 0]]


@pytest.mark.parametrize("shape", [(4,), (3, 2), (2, 3, 3, 3)])
def test_as_timm_does(shape):
    agc = pytest.importorskip("timm.utils.agc", reason="needs timm, of the extra networks")
    p, other = (
        nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(0))) for _ in range(2)
    )
    p.grad, other.grad = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    clip_adaptively([p], 0.05)
    agc.adaptive_clip_grad([other], 0.05)
    torch.testing.assert_close(p.grad, other.grad)


def test_the_head_is_not_clipped():
    model = small_model()
    named = {id(p): name for name, p in model.named_parameters()}
    assert [named[id(p)] for p in before_head(model)] == ["1.weight", "1.bias", "2.weight", "2.bias"]
