"""What MOON compares: the features of networks of several kinds."""

import numpy as np
import pytest
import torch
from torch import nn

from clients import OBJECTIVES, Classification, Local, Loss, NextCharacter

from ..helpers import make_examples
from .test_moon import similarity


class Recurrent(nn.Module):
    """Its head is called at every place of a text, and is not its last layer."""

    head = "decode"

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.decode = nn.Linear(6, 5)
        self.embedding = nn.Embedding(5, 3)
        self.lstm = nn.LSTM(3, 6, batch_first=True)

    def forward(self, x):
        return self.decode(self.lstm(self.embedding(x))[0])


def convolutional(*last):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.Tanh(), *last)


NETWORKS = {
    "flattened": (lambda: convolutional(nn.Flatten(), nn.Linear(3, 3)), lambda m, x: m[:4](x)),
    "a convolution last": (
        lambda: convolutional(nn.Conv2d(3, 3, 1), nn.Flatten()),
        lambda m, x: m[:3](x).flatten(1),
    ),
    "a text's places": (Recurrent, lambda m, x: m.lstm(m.embedding(x))[0].flatten(1)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_features_are_what_goes_into_the_head_flattened(name):
    """The contrastive term of three models in evaluation mode, written out from their parts."""
    make, into_head = NETWORKS[name]
    models = [make() for _ in range(3)]
    for i, model in enumerate(models):
        torch.manual_seed(i)
        with torch.no_grad():
            for entry in model.state_dict().values():
                if entry.is_floating_point():
                    entry.add_(0.2 * torch.rand_like(entry))
        model.eval()
    text = name == "a text's places"
    x = torch.randint(5, (6, 4)) if text else make_examples(6).prepared(np.arange(6))[0]
    w, received, previous = models
    problem = NextCharacter() if text else Classification()
    with torch.no_grad():
        z, near, far = (into_head(model, x) for model in models)
    expected = torch.log1p(((similarity(z, far) - similarity(z, near)) / 0.5).exp())
    memory = {n: e.numpy() for n, e in previous.state_dict().items()}
    objective = OBJECTIVES["moon"](
        dict(received.named_parameters()), {}, memory, local=Local(received, make_examples(), Loss(problem))
    )
    received.load_state_dict(w.state_dict())
    targets = x if text else torch.zeros(6, dtype=torch.long)
    for reduction in ("none", "mean"):
        loss, output = objective.loss(received, x, targets, reduction)
        contrast = loss - problem.loss(output, targets, reduction)
        wanted = expected if reduction == "none" else expected.mean()
        torch.testing.assert_close(contrast, wanted, atol=1e-5, rtol=0)
