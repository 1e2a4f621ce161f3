"""Training on another device than the CPU: on PyTorch's meta device, whose tensors mix with no others."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from clients import CLIENTS, OBJECTIVES

from .helpers import CONFIG, make_client, small_model

NEEDS_VALUES = {"fedlc", "fedntd", "fedrs", "fedtan", "mimelite"}
"""They select or count by values, which meta tensors do not have."""


@pytest.mark.parametrize("objective", sorted(OBJECTIVES.keys() - NEEDS_VALUES))
def test_a_step_of_every_objective_stays_on_the_device(objective):
    client = make_client(CLIENTS["fedbn"], objective=objective)
    model = copy.deepcopy(small_model()).to("meta")
    task = replace(client.task, model=model, train=replace(client.task.train, device="meta"))
    client = CLIENTS["fedbn"](task, client.memory)
    zeros = {name: np.zeros_like(task.initial[name]) for name in client.trained_names}
    prototypes = {"prototypes": np.zeros((3, 5), np.float32), "known": np.ones(3, np.float32)}
    records = {
        **dict.fromkeys(("control", "gradient", "h", "perturbation", "momentum", "second-moment"), zeros),
        "prototypes": prototypes,
    }
    run = client.begin_run(dict(model.named_parameters()), CONFIG, records)
    ((inputs, targets),) = task.train.load([np.arange(8)], training=True)
    loss, output = run.objective.loss(model, inputs, targets)
    torch.autograd.backward(loss)
    run.objective.correct_gradients()
    run.training.make_optimizer(model.parameters(), 0.1).step()
    for tensor in (loss, output, *(p.grad for p in model.parameters())):
        assert tensor.device.type == "meta"
