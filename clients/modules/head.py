"""A model's head, its input features, and forward passes without side effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .arrays import aliases
from .lazy_torch import nn, torch
from .precision import in_float32
from .rng import seeded

Pass = tuple["torch.Tensor", "torch.Tensor"]
"""The input of the head, (b, d), and the model's output, (b, ...)."""


def head_of(model: nn.Module) -> tuple[str, nn.Module]:
    """Return the head and its name.

    It is the submodule that the model's attribute ``head`` names, otherwise the last layer with direct
    parameters. If only the model itself has any, it is the whole model, named ``""``.

    Raises
    ------
    ValueError
        When ``head`` is not the name of a submodule, or the model has no parameters.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    name = getattr(model, "head", None)
    if isinstance(name, str):
        if not name or name not in modules:
            raise ValueError(f"{type(model).__name__}.head is {name!r}, which is not the name of a submodule")
        return name, modules[name]
    layers = [name for name, module in modules.items() if _is_layer(module)]
    if not layers:
        raise ValueError(f"{type(model).__name__} has no parameters, so it has no head")
    return layers[-1], modules[layers[-1]]


def _is_layer(module: nn.Module) -> bool:
    parametrize = nn.utils.parametrize
    if isinstance(module, parametrize.ParametrizationList):  # part of the layer that it parametrises
        return False
    return parametrize.is_parametrized(module) or next(module.parameters(recurse=False), None) is not None


def head_entries(model: nn.Module) -> frozenset[str]:
    """Return the names of all entries of the head, a tied one under all of its names."""
    prefix, head = head_of(model)
    names = aliases(model)
    entries = (f"{prefix}.{name}" if prefix else name for name in head.state_dict())
    return frozenset(alias for entry in entries for alias in names.get(entry, (entry,)))


def features(model: nn.Module, inputs: torch.Tensor) -> Pass:
    """Run a normal forward pass and return the head's input with the output. The head's last call counts.

    Raises
    ------
    ValueError
        When the model's forward never calls its head, or not with a tensor.
    """
    return _with_head_input(model, lambda: model(inputs))


def frozen(
    model: nn.Module, entries: Mapping[str, torch.Tensor] | None, inputs: torch.Tensor, train: bool = False
) -> Pass:
    """Return `features` of a pass without side effects, see `forward_only`."""
    return _with_head_input(model, lambda: forward_only(model, entries, inputs, train))


def forward_only(
    model: nn.Module, entries: Mapping[str, torch.Tensor] | None, inputs: torch.Tensor, train: bool = False
) -> torch.Tensor:
    """Return the output, without gradient, of a pass that changes no buffer, mode or random state.

    Parameters
    ----------
    model : nn.Module
        The model; unchanged.
    entries : Mapping[str, Tensor], optional
        Replacements of the model's entries, by their names in its state dict; a tied one under any of its
        names. Other entries are the model's.
    inputs : Tensor
        Shape (b, ...).
    train : bool
        Whether to use training mode instead of evaluation mode.
    """
    used = _entries(model, entries or {})
    with torch.no_grad(), seeded(0), _mode(model, train):
        output: torch.Tensor = torch.func.functional_call(model, used, (inputs,), tie_weights=False)
    return output


def _entries(model: nn.Module, given: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return every parameter and a copy of every buffer, replaced by ``given`` ones.

    A tied tensor is one tensor under each of its names. A module used twice has one name: PyTorch would
    restore it wrongly under two.
    """
    names = aliases(model)
    used: dict[str, torch.Tensor] = {}
    for prefix, module in model.named_modules():
        buffers = dict(module.named_buffers(prefix, recurse=False, remove_duplicate=False))
        parameters = module.named_parameters(prefix, recurse=False, remove_duplicate=False)
        for name, tensor in (*parameters, *buffers.items()):
            known = next((used[alias] for alias in names[name] if alias in used), None)
            if known is None:
                value = next((given[alias] for alias in names[name] if alias in given), tensor).detach()
                known = value.clone() if name in buffers else value
            used[name] = known
    return used


def _with_head_input(model: nn.Module, call: Callable[[], torch.Tensor]) -> Pass:
    name, head = head_of(model)
    seen: list[torch.Tensor] = []

    def record(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen[:] = [next(iter((*args, *kwargs.values())))]

    hook = head.register_forward_pre_hook(record, with_kwargs=True)
    try:
        output = call()
    finally:
        hook.remove()
    if not seen:
        raise ValueError(f"the forward of {type(model).__name__} does not call its head {name!r}")
    if not isinstance(seen[0], torch.Tensor):
        raise ValueError(f"the head {name!r} of {type(model).__name__} is not called with a tensor")
    return in_float32(seen[0].reshape(len(seen[0]), -1)), output


@contextmanager
def _mode(model: nn.Module, train: bool) -> Iterator[None]:
    """Set every module to one mode; restore the modes afterwards."""
    before = [(module, module.training) for module in model.modules()]
    model.train(train)
    try:
        yield
    finally:
        for module, training in before:
            module.training = training
