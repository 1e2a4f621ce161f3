"""Where a model's head begins, what goes into it, and passes that leave no trace."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.parametrize import ParametrizationList, is_parametrized

from .parameter_names import aliases
from .rng import seeded

Pass = tuple[Tensor, Tensor]
"""What went into the head, (b, d), and the model's output, (b, ...)."""


def head_of(model: nn.Module) -> tuple[str, nn.Module]:
    """The head and its name: what the model's attribute ``head`` names, otherwise the last layer with
    parameters of its own; the whole model, called ``""``, where no other module has any.

    Raises
    ------
    ValueError
        When ``head`` names no submodule, or nothing has parameters.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    said = getattr(model, "head", None)
    if isinstance(said, str):
        if not said or said not in modules:
            raise ValueError(f"{type(model).__name__}.head is {said!r}, which is no submodule of it")
        return said, modules[said]
    layers = [name for name, module in modules.items() if _is_layer(module)]
    if not layers:
        raise ValueError(f"{type(model).__name__} has no parameters, so it has no head")
    return layers[-1], modules[layers[-1]]


def _is_layer(module: nn.Module) -> bool:
    if isinstance(module, ParametrizationList):  # a part of the layer whose weight it makes
        return False
    return is_parametrized(module) or next(module.parameters(recurse=False), None) is not None


def head_entries(model: nn.Module) -> frozenset[str]:
    """Names of all entries of the head, a tied one under all of its names."""
    prefix, head = head_of(model)
    names = aliases(model)
    entries = (f"{prefix}.{name}" if prefix else name for name in head.state_dict())
    return frozenset(alias for entry in entries for alias in names.get(entry, (entry,)))


def features(model: nn.Module, inputs: Tensor) -> Pass:
    """A pass as any other, and what went into the head; of several calls of the head, the last one's.

    Raises
    ------
    ValueError
        When the model's forward never calls its head.
    """
    return _watched(model, lambda: model(inputs))


def frozen(
    model: nn.Module, entries: Mapping[str, Tensor] | None, inputs: Tensor, train: bool = False
) -> Pass:
    """`features` of `unmoved`."""
    return _watched(model, lambda: unmoved(model, entries, inputs, train))


def unmoved(
    model: nn.Module, entries: Mapping[str, Tensor] | None, inputs: Tensor, train: bool = False
) -> Tensor:
    """The output, without gradient, of a pass that changes no buffer, no mode and no generator of torch.

    Parameters
    ----------
    model : nn.Module
        Whose forward it is.
    entries : Mapping[str, Tensor], optional
        What takes the place of entries of the model, by their names in its state dict; a tied one under any
        of its names. Those that are missing are the model's own.
    inputs : Tensor
        Shape (b, ...).
    train : bool
        In training mode; otherwise in evaluation mode.
    """
    used = _entries(model, entries or {})
    with torch.no_grad(), seeded(0), _mode(model, train):
        output: Tensor = functional_call(model, used, (inputs,), tie_weights=False)
    return output


def _entries(model: nn.Module, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every parameter and a copy of every buffer, as given or else the model's own: a tied one is one tensor
    under each of its names, a module in two places is there once, since PyTorch would put it back wrongly."""
    names = aliases(model)
    used: dict[str, Tensor] = {}
    for prefix, module in model.named_modules():
        buffers = dict(module.named_buffers(prefix, recurse=False, remove_duplicate=False))
        parameters = module.named_parameters(prefix, recurse=False, remove_duplicate=False)
        for name, tensor in (*parameters, *buffers.items()):
            known = next((used[alias] for alias in names[name] if alias in used), None)
            if known is None:
                taken = next((given[alias] for alias in names[name] if alias in given), tensor).detach()
                known = taken.clone() if name in buffers else taken
            used[name] = known
    return used


def _watched(model: nn.Module, call: Callable[[], Tensor]) -> Pass:
    name, head = head_of(model)
    seen: list[Tensor] = []

    def note(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen[:] = [next(iter((*args, *kwargs.values())))]

    hook = head.register_forward_pre_hook(note, with_kwargs=True)
    try:
        output = call()
    finally:
        hook.remove()
    if not seen:
        raise ValueError(f"the forward of {type(model).__name__} does not call its head {name!r}")
    if not isinstance(seen[0], Tensor):
        raise ValueError(f"the head {name!r} of {type(model).__name__} is not called with a tensor")
    return seen[0].reshape(len(seen[0]), -1), output


@contextmanager
def _mode(model: nn.Module, train: bool) -> Iterator[None]:
    """Every module in one mode; afterwards each in its own."""
    before = [(module, module.training) for module in model.modules()]
    model.train(train)
    try:
        yield
    finally:
        for module, training in before:
            module.training = training
