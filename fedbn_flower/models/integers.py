"""Which inputs a model takes: float32, or whole numbers such as tokens, int64.

A module says so by ``integer_inputs = True`` or ``False``. Of any other a trial decides: where a batch of
zeros in float32 raises and one in int64 does not, as with an ``nn.Embedding``, it takes whole numbers. The
trial needs no data, so that a server whose SuperNodes keep them decides as they do.
"""

from __future__ import annotations

from dataclasses import replace

from fedbn_flower.clients.modules.lazy_torch import nn, torch
from fedbn_flower.clients.modules.rng import seeded

from ..core.input_spec import InputSpec

DECLARED = "integer_inputs"
MOST_AXES = 2
"""Of an example that may be whole numbers without a declaration: more are an image's."""


def fitted(model: nn.Module, spec: InputSpec) -> InputSpec:
    """Return the specification of the inputs that a model takes; its mode and torch's generators stay."""
    declared = getattr(model, DECLARED, None)
    if declared is not None:
        return replace(spec, integers=bool(declared))
    if not may_be_integers(spec):
        return spec
    of_integers = replace(spec, integers=True)
    with seeded(0):
        takes_integers = error_on(model, spec) and not error_on(model, of_integers)
    return of_integers if takes_integers else spec


def may_be_integers(spec: InputSpec) -> bool:
    """Return whether a model that does not say so may take whole numbers."""
    return len(spec.shape) <= MOST_AXES and not spec.integers and spec.predicts != "characters"


def error_to_show(model: nn.Module, spec: InputSpec, error: Exception) -> Exception:
    """Return what a model that raised this on zeros in float32 raises on tokens, if it has an embedding."""
    embeddings = (nn.Embedding, nn.EmbeddingBag)
    if may_be_integers(spec) and any(isinstance(module, embeddings) for module in model.modules()):
        return error_on(model, replace(spec, integers=True)) or error
    return error


def error_on(model: nn.Module, spec: InputSpec) -> Exception | None:
    """Return what a model raises on zeros in evaluation mode, or None; its mode stays."""
    trains = {name: module.training for name, module in model.named_modules()}
    try:
        with torch.no_grad():
            model.eval()(spec.zeros(2))
    except Exception as error:
        return error
    finally:
        for name, module in model.named_modules():
            module.training = trains.get(name, module.training)
    return None
