"""Stacked layers against the layers that they hold."""

import pytest
import torch
from torch import nn

from fedbn_flower.lockstep.stacked_modules import StackedLinear


@pytest.mark.parametrize("outputs", [3, 70], ids=["narrow", "wide"])
@pytest.mark.parametrize("frozen", ["", "weight", "bias"])
@pytest.mark.parametrize("bias", [True, False])
def test_every_row_of_a_stacked_layer_is_a_layer(outputs, frozen, bias):
    """Examples are taken by turns: the first of each model, then the second of each."""
    torch.manual_seed(0)
    layers = [nn.Linear(5, outputs, bias) for _ in range(3)]
    for name, parameter in layers[0].named_parameters():
        parameter.requires_grad_(name != frozen)
    together = StackedLinear(layers[0], 3)
    for name, rows in together.named_parameters():
        rows.detach().copy_(torch.stack([layer.get_parameter(name) for layer in layers]))
    inputs = torch.randn(4, 3, 5, requires_grad=True)
    weights = torch.randn(4, 3, outputs)
    outcome = together(inputs.flatten(0, 1)).view_as(weights)
    (outcome * weights).sum().backward()
    for i, layer in enumerate(layers):
        own = inputs[:, i].detach().requires_grad_()
        expected = layer(own)
        (expected * weights[:, i]).sum().backward()
        torch.testing.assert_close(outcome[:, i], expected)
        torch.testing.assert_close(inputs.grad[:, i], own.grad)
        for name, rows in together.named_parameters():
            assert (rows.grad is None) == (name == frozen)
            if name != frozen:
                torch.testing.assert_close(rows.grad[i], layer.get_parameter(name).grad)


def test_the_factors_of_a_gradient_give_its_step():
    """Of a layer that is used twice, with fewer models active than there are."""
    torch.manual_seed(0)
    layer = StackedLinear(nn.Linear(5, 5), 3)
    start = torch.randn(3, 5, 5)
    inputs, weights = torch.randn(2 * 4, 5), torch.randn(2 * 4, 5)
    layer.serve(2, None)

    def backward(factors):
        layer.factors = factors
        with torch.no_grad():
            layer.weight.copy_(start)
            layer.bias.zero_()
        layer.zero_grad()
        (layer(layer(inputs).tanh()) * weights).sum().backward()

    backward(None)
    expected, bias = start - 0.5 * layer.weight.grad, layer.bias.grad.clone()
    backward([])
    assert layer.weight.grad is None
    layer.descend(0.5)
    torch.testing.assert_close(layer.weight.detach(), expected)
    torch.testing.assert_close(layer.bias.grad, bias)
    assert layer.factors == []
    assert torch.equal(layer.weight[2], start[2])
