"""The server rule of a configuration."""

import numpy as np
import pytest
import torch
from torch import nn

from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.server.federation import Federation


def tied_network(shape):
    """Two layers that are one, each name of which travels."""
    torch.manual_seed(0)
    middle = nn.Linear(32, 32)
    first = nn.Linear(int(np.prod(shape.shape)), 32)
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), middle, nn.ReLU(), middle, nn.Linear(32, 10))


def test_a_clipped_update_is_as_long_as_the_bound_where_weights_are_tied(configured):
    """One client a round, so that the model's step is its clipped update: of length 0.01 over the tensors."""
    config = configured(
        model=f"{__name__}:tied_network", strategy="fedavg", client="shared", clip_update_norm=0.01,
        fraction_train=0.5, rounds=1, fraction_evaluate=0,
    )  # fmt: skip
    federation = Federation(config)
    arrays = federation.run(InlineGrid(2, config.to_user_config()), [])
    steps = {name: array.numpy() - federation.initial[name] for name, array in arrays.items()}
    np.testing.assert_array_equal(steps["3.weight"], steps["5.weight"])
    once = [step.ravel() for name, step in steps.items() if not name.startswith("5.")]
    assert np.linalg.norm(np.concatenate(once)) == pytest.approx(0.01, rel=1e-4)
