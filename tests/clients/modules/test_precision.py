"""Forward passes in half precision; parameters, gradients and what is sent stay float32."""

import copy
from itertools import cycle

import numpy as np
import pytest
import torch
from torch import nn

from clients import CLIENTS, LOSSES, OBJECTIVES, Examples, LocalTraining, Regression
from clients.modules.head import features
from clients.modules.layers import HybridBatchNorm
from clients.modules.precision import accept_float32, compute_in, precision_of
from clients.objectives import Objective
from clients.objectives.sharpness import FedSAM
from clients.training import LocalRun, train_model

from ..helpers import make_client, small_model, two_rounds

HALF = ("bf16", "fp16")
FINER = {"bf16": 2**-9, "fp16": 2**-12}
"""Half of the distance from 1 to the next greater number: 1 + this is rounded to 1."""


def product(weight=0.0):
    """The model w x."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, weight)
    return model


def one_example(x, y):
    return Examples({"x": np.full((1, 1), x, np.float32), "y": np.full((1, 1), y, np.float32)}, np.arange(1))


def trained(model, y, epochs, rate=0.5, optimizer="sgd"):
    """The metrics of full-batch steps on the mean of (w x - y)^2 at x = 1."""
    objective = Objective({}, {}, problem=Regression())
    run = LocalRun(one_example(1, y), LocalTraining(epochs, 0, optimizer), objective, rate, (0,))
    return train_model(model, run)


@pytest.mark.parametrize("precision", HALF)
def test_a_product_is_rounded_and_its_output_is_float32(precision):
    model, x = product(1 + FINER[precision]), torch.ones(1, 1)
    assert model(x).item() == 1 + FINER[precision]
    compute_in(model, precision)
    output = model(x)
    assert (output.item(), output.dtype) == (1.0, torch.float32)
    output.backward()
    assert model.weight.dtype == model.weight.grad.dtype == torch.float32


def test_fp32_leaves_a_model_as_it_is():
    model = product()
    before = dict(vars(model))
    compute_in(model, "fp32")
    assert vars(model) == before
    assert precision_of(model) is torch.float32


@pytest.mark.parametrize("precision", HALF)
def test_a_copy_computes_with_its_own_weights(precision):
    model = product(1.0)
    compute_in(model, precision)
    twin = copy.deepcopy(model)
    nn.init.constant_(twin.weight, 1 + FINER[precision])
    nn.init.constant_(model.weight, 3.0)
    assert (twin(torch.ones(1, 1)).item(), precision_of(twin)) == (1.0, precision_of(model))


@pytest.mark.parametrize("precision", HALF)
def test_the_input_of_the_head_is_float32(precision):
    model = nn.Sequential(product(1 + FINER[precision]), product(1.0))
    compute_in(model, precision)
    z, _ = features(model, torch.ones(1, 1))
    assert (z.item(), z.dtype) == (1.0, torch.float32)


@pytest.mark.parametrize("precision", HALF)
def test_a_second_pass_has_the_weights_of_the_second_pass(precision):
    """(w x - y)^2 at w = x = 1 and y = 0 has the slope 2 > 0: FedSAM's second pass is at w + rho."""
    model = product(1.0)
    compute_in(model, precision)
    objective = FedSAM({"weight": model.weight}, {"rho": 0.5}, problem=Regression())
    loss, output = objective.loss(model, torch.ones(1, 1), torch.zeros(1, 1))
    assert (loss.item(), output.item()) == (2.25, 1.5)


@pytest.mark.parametrize("optimizer", ["sgd", "sgd:nesterov=false"])
def test_gradients_that_float16_cannot_hold_are_scaled(optimizer):
    """y = 2^-27 gives the gradient -2 y = -2^-26, less than a quarter of float16's least number."""
    model = product()
    compute_in(model, "fp16")
    trained(model, 2.0**-27, 1, rate=1.0, optimizer=optimizer)
    assert model.weight.item() == 2.0**-26
    assert torch.tensor(2.0**-26).half() == 0


def test_a_step_whose_gradients_overflow_is_left_out_and_not_counted():
    """The gradient at w = 0 and y = -1 is 2: times 65536, and times 32768, it is more than 65504."""
    model = product()
    compute_in(model, "fp16")
    assert trained(model, -1.0, 3)["local-steps"] == 1
    assert model.weight.item() == -1.0  # w - 0.5 * 2


def test_a_client_whose_every_step_overflows_has_failed():
    model = product()
    compute_in(model, "fp16")
    with pytest.raises(FloatingPointError, match="every gradient overflows in float16"):
        trained(model, -1.0, 2)
    assert model.weight.item() == 0


def test_bf16_has_the_range_of_float32_and_is_not_scaled():
    model = product()
    compute_in(model, "bf16")
    assert trained(model, -1.0, 1)["local-steps"] == 1
    assert model.weight.item() == -1.0


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("precision", "client", "objective"),
    [
        *(("bf16", "fedbn", name) for name in OBJECTIVES),
        *(("bf16", client, "plain") for client in ("fedrep", "ditto")),
        *(("fp16", "fedbn", name) for name in ("plain", "fedsam", "scaffold")),
    ],
)
def test_what_is_sent_and_remembered_is_float32(precision, client, objective):
    model = small_model()
    compute_in(model, precision)
    found, metrics = two_rounds(make_client(client, None, model, objective=objective))
    assert {np.asarray(array).dtype.name for array in found.values()} <= {"float32", "int64"}
    assert metrics[0]["train-loss"] == pytest.approx(np.log(3), rel=0.7)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("client", "objective", "loss"),
    [
        *((client, objective, "auto") for client, objective in zip(cycle(CLIENTS), OBJECTIVES)),
        *(
            ("shared", "plain", loss)
            for loss in ("class-balanced", "focal", "label-smoothing", "logit-adjusted")
        ),
        ("shared", "fedsat", "calc"),
    ],
)
def test_a_float64_network_trains_as_one_of_float32_does(client, objective, loss):
    """What is of the model is float64 then, on its way and at home, and agrees to float32's precision."""
    norm = HybridBatchNorm(5, 1e-5, 0.1, True) if client == "hbn" else nn.BatchNorm1d(5)
    torch.manual_seed(0)
    single = nn.Sequential(nn.Flatten(), nn.Linear(4, 5), norm, nn.ReLU(), nn.Linear(5, 3))
    double = copy.deepcopy(single).double()
    accept_float32(double, torch.zeros(2, 1, 2, 2))
    found = []
    for model in (double, single):
        one = make_client(client, None, model, objective=objective)
        one.task.__dict__["loss"] = LOSSES[loss]
        found.append(two_rounds(one, **{"eval-splits": "test"}))
    (arrays, metrics), (expected, of_single) = found
    assert arrays.keys() == expected.keys()
    for key, array in arrays.items():
        np.testing.assert_allclose(array, expected[key], rtol=1e-3, atol=1e-4, err_msg=str(key))
    assert {array.dtype.name for key, array in arrays.items() if key[1] == "sent"} <= {"float64", "int64"}
    assert metrics[1]["train-loss"] == pytest.approx(of_single[1]["train-loss"], rel=1e-4)
