"""Optimisers by name: torch's own, with their arguments; which of them may step on stacked parameters."""

import numpy as np
import pytest
import torch

from clients.modules import optimizers

FURTHER = (
    "sgd:nesterov=true", "sgd:dampening=0.1", "adam:amsgrad=true", "adamw:betas=0.5/0.9,amsgrad=true",
    "rmsprop:centered=true,alpha=0.9", "nadam:decoupled_weight_decay=true", "asgd:t0=1,lambd=0.1",
    "adagrad:lr_decay=0.1,initial_accumulator_value=1",
)  # fmt: skip
RATE, MOMENTUM, DECAY = 0.05, 0.9, 0.1


def after_steps(text, start, gradients, transposed=False):
    """Parameters after a step on each of the gradients."""

    def laid_out(tensor):
        return tensor.mT.contiguous().mT if transposed else tensor.clone()

    parameters = [torch.nn.Parameter(laid_out(values)) for values in start]
    optimizer = optimizers.make_optimizer(text, parameters, RATE, MOMENTUM, DECAY)
    for step in gradients:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = laid_out(gradient)
        optimizer.step()
    return [parameter.detach() for parameter in parameters]


def stacked_and_alone(text, transposed=False):
    """Parameters of five clients after six steps: stacked, and each client's alone, stacked afterwards."""
    generator = torch.Generator().manual_seed(0)
    scales = torch.logspace(-2, 1, 5).view(5, 1, 1)
    start = [torch.randn(5, *shape, generator=generator) for shape in ((7, 13), (3, 5))]
    gradients = [[torch.randn(x.shape, generator=generator) * scales for x in start] for _ in range(6)]
    gradients[3][1][2] = 0.0  # one client's gradient vanishes in one step
    alone = [
        after_steps(text, [x[i] for x in start], [[g[i] for g in step] for step in gradients], transposed)
        for i in range(5)
    ]
    return after_steps(text, start, gradients, transposed), [torch.stack(x) for x in zip(*alone, strict=True)]


@pytest.mark.parametrize("text", [*sorted(optimizers.STACKABLE), *FURTHER])
def test_a_step_on_stacked_parameters_is_a_step_on_each_to_the_bit(text):
    """In rows, and in columns."""
    for transposed in (False, True):
        for together, alone in zip(*stacked_and_alone(text, transposed), strict=True):
            assert torch.equal(together, alone)


def test_those_that_are_left_out_of_it_differ_or_go_by_signs():
    """So a new one of torch's trains one by one until somebody has looked at it."""
    left_out = optimizers.optimizers().keys() - optimizers.WITHOUT_PLAIN_STEP.keys() - optimizers.STACKABLE
    assert left_out - {"muon"} == {"adafactor", "rprop"}
    together, alone = stacked_and_alone("adafactor")
    assert not any(torch.equal(x, y) for x, y in zip(together, alone, strict=True))
    moved = [after_steps("rprop", [torch.zeros(1)], [[torch.tensor([g])]]) for g in (1e-9, 1.0)]
    assert moved[0] == moved[1]


def test_sgd_is_torchs_to_the_bit():
    start = [torch.linspace(-1, 1, 12).view(3, 4)]
    gradients = [[torch.sin(start[0] * k)] for k in range(1, 5)]
    (ours,) = after_steps("sgd", start, gradients)
    (torchs,) = after_steps("sgd:dampening=0", start, gradients)
    assert torch.equal(ours, torchs)


def test_adamw_by_hand():
    """Loshchilov and Hutter 2019, algorithm 2, with other betas than torch's defaults."""
    p, m, v = 1.0, 0.0, 0.0
    for t, g in enumerate((0.5, -0.25, 1.0), start=1):
        p *= 1 - RATE * DECAY
        m, v = 0.5 * m + 0.5 * g, 0.75 * v + 0.25 * g**2
        p -= RATE * (m / (1 - 0.5**t)) / (np.sqrt(v / (1 - 0.75**t)) + 1e-3)
    gradients = [[torch.tensor([g])] for g in (0.5, -0.25, 1.0)]
    (found,) = after_steps("adamw:betas=0.5/0.75,eps=1e-3", [torch.ones(1)], gradients)
    assert found.item() == pytest.approx(p, rel=1e-6)


def test_momentum_goes_to_those_that_have_it():
    """RMSprop: v = 0.99 v + 0.01 g^2, b = 0.9 b + g / (sqrt(v) + eps), p -= lr b."""
    p, v, b = 1.0, 0.0, 0.0
    for gradient in (0.5, -0.25):
        g = gradient + DECAY * p
        v = 0.99 * v + 0.01 * g**2
        b = MOMENTUM * b + g / (np.sqrt(v) + 1e-8)
        p -= RATE * b
    (found,) = after_steps("rmsprop", [torch.ones(1)], [[torch.tensor([g])] for g in (0.5, -0.25)])
    assert found.item() == pytest.approx(p, rel=1e-6)
    assert optimizers.unused_keys("rmsprop") == set()
    assert optimizers.unused_keys("adamw:eps=1e-6") == {"client-momentum"}
    assert optimizers.unused_keys("rprop") == {"client-momentum", "weight-decay"}
    assert optimizers.torch_defaults("adamw")["weight-decay"] == 0.01


def test_values_have_the_types_of_the_defaults():
    found = optimizers.arguments_of("adamw:betas=0/0.9, amsgrad=false,eps=1e-6")
    assert found == {"betas": (0.0, 0.9), "amsgrad": False, "eps": 1e-6}
    assert [type(beta) for beta in found["betas"]] == [float, float]
    assert optimizers.arguments_of("sgd") == {}


REFUSED = [
    ("sdg", "one of adadelta, "),
    ("lbfgs", "another one: LBFGS computes the loss several times"),
    ("sparseadam", "another one: SparseAdam takes sparse gradients"),
    ("adamw:", "adamw:ARGUMENT=VALUE,..., each argument once"),
    ("adamw:eps", "adamw:ARGUMENT=VALUE"),
    ("adamw:eps=1e-6,", "adamw:ARGUMENT=VALUE"),
    ("adamw:eps=1,eps=2", "each argument once"),
    ("adamw:beta=0.9", "arguments of adamw: amsgrad, betas, eps"),
    ("adamw:foreach=true", "arguments of adamw: amsgrad, betas, eps"),
    ("adamw:maximize=true", "arguments of adamw: amsgrad, betas, eps"),
    ("sgd:lr=1", "lr of the optimiser under its key, client-lr"),
    ("sgd:momentum=0.9", "momentum of the optimiser under its key, client-momentum"),
    ("adamw:weight_decay=0.1", "weight_decay of the optimiser under its key, weight-decay"),
    ("adamw:betas=0.9", "betas as 2 numbers joined by /"),
    ("adamw:betas=0.9/x", "betas as 2 numbers joined by /"),
    ("adamw:eps=nan", "a number as eps"),
    ("adamw:eps=inf", "a number as eps"),
    ("sgd:nesterov=yes", "nesterov=true or nesterov=false"),
    ("adamw:betas=1.5/0.9", "what torch.optim.AdamW takes: Invalid beta parameter at index 0: 1.5"),
    ("adamw:eps=-1", "what torch.optim.AdamW takes: Invalid epsilon value: -1"),
    ("sgd:nesterov=true", "what torch.optim.SGD takes: Nesterov momentum requires a momentum"),
]


def test_what_cannot_be_says_what_can():
    for text, expected in REFUSED:
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            optimizers.check_optimizer(text, RATE, 0.0, DECAY)
        assert str(caught.value).startswith(expected) or expected in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.skipif("muon" not in optimizers.optimizers(), reason="this PyTorch has no Muon")
def test_muon_takes_matrices_only_and_whole_steps():
    optimizers.check_optimizer("muon:ns_steps=3,nesterov=false", RATE, MOMENTUM, DECAY)
    with pytest.raises(ValueError, match="what torch.optim.Muon takes: .*integer"):
        optimizers.check_optimizer("muon:ns_steps=2.5", RATE, MOMENTUM, DECAY)
    with pytest.raises(ValueError, match="what torch.optim.Muon takes: .*2D parameters"):
        optimizers.make_optimizer("muon", [torch.nn.Parameter(torch.zeros(3))], RATE, MOMENTUM, DECAY)
