"""FedSAM and FedSpeed: no way up, statistics, what is evaluated; their steps are in formulas elsewhere."""

import numpy as np
import pytest
import torch
from torch import nn

from clients import OBJECTIVES, Local, Loss

from ..helpers import CONFIG, make_examples, small_model
from ..helpers import make_client as small_client


class Squares(Loss):
    """||w||^2 / 2 of the output itself."""

    def __call__(self, output, targets, reduction="mean"):
        return (output**2).sum() / 2


class Constant(nn.Module):
    def __init__(self, *values):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(values))

    def forward(self, x):
        return self.w


def sam_of(model, loss=None, rho=0.5):
    examples = make_examples()
    return OBJECTIVES["fedsam"](
        dict(model.named_parameters()), {"rho": rho}, local=Local(model, examples, loss or Loss())
    )


def test_without_a_gradient_there_is_no_way_up():
    model = Constant(0.0, 0.0)
    objective = sam_of(model, Squares())
    objective.loss(model, torch.zeros(2), torch.zeros(2))[0].backward()
    objective.correct_gradients()
    assert model.w.tolist() == model.w.grad.tolist() == [0.0, 0.0]


def shared_batch_norm():
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(5)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 5), norm, nn.Tanh(), norm, nn.Linear(5, 3))


@pytest.mark.parametrize(("make", "passes"), [(small_model, 1), (shared_batch_norm, 2)])
def test_batch_norm_statistics_move_once_a_step(make, passes):
    """Five steps in a round: as often as under plain SGD, where a layer is used twice, too."""
    counted = []
    for objective in ("plain", "fedsam"):
        client = small_client("shared", model=make(), objective=objective)
        sent = client.fit(client.get_parameters({}), CONFIG)[0]
        counted.append(sent.by_name()["2.num_batches_tracked"])
    assert counted == [5 * passes] * 2


def test_what_is_evaluated_after_training_is_x_i_and_not_what_is_sent():
    client = small_client("shared", objective="fedspeed")
    update = client.fit(client.get_parameters({}), CONFIG | {"eval-splits": "test"})
    sent = update.arrays.by_name()
    assert not np.allclose(client.task.model.state_dict()["4.weight"].numpy(), sent["4.weight"])
    x, y = client.task.evaluation["test"].prepared(np.arange(30))
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(client.task.model.eval()(x), y).item()
    assert update.metrics["loss"] == pytest.approx(loss, rel=1e-5)
