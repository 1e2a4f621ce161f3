"""Warn of outputs that do not fit the loss or the classes."""

from __future__ import annotations

from collections.abc import Iterator

from fedbn_flower.clients import Classification, NextCharacter
from fedbn_flower.clients.modules.lazy_torch import nn, torch

from ...names import LOSS, models_named
from ..inputs import RunInputs


def of_outputs(inputs: RunInputs) -> Iterator[str]:
    """Return a line for each model with more outputs than classes, or with a softmax before a loss that
    applies one itself; not for a softmax that the configuration asks for."""
    config, spec = inputs.config, inputs.model_spec
    if not isinstance(inputs.dataset.problem, Classification | NextCharacter):
        return
    for i, name in enumerate(models_named(config.model)):
        model, _ = inputs.model(i)
        output = _output(model, inputs.initial(i).spec.zeros(2, config.device))
        if (width := output.shape[-1]) > spec.outputs:
            yield (
                f"model: {name!r} has {width} outputs for {spec.outputs} {spec.predicts}: the last "
                f"{width - spec.outputs} are never right"
            )
        if config.softmax_output or config.loss not in LOSS.names:
            continue
        if sums_to_one(output):
            yield (
                f"model: {name!r} ends in a softmax, and the loss applies one itself: it learns slowly; let "
                "the model give the values before it"
            )
        elif sums_to_one(output.exp()):
            yield (
                f"model: {name!r} ends in a log-softmax, and the loss applies one itself: the second changes "
                "nothing, and the model needs none"
            )


def sums_to_one(values: torch.Tensor) -> bool:
    """Whether the values of each prediction are non-negative and sum to 1."""
    sums = values.sum(-1)
    return bool((values >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-3)


def _output(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    trains = model.training
    with torch.no_grad():
        output: torch.Tensor = model.eval()(inputs)
    model.train(trains)
    return output
