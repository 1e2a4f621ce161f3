"""Frozen parts of a model: parameters that are not trained, and entries that therefore never change.

The entries of a state dict are of three kinds. Shared ones are sent and averaged, local ones stay at a
client, and constant ones are known to all from the start: they are in no message, sum, memory or checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import NamedTuple

from .arrays import aliases
from .batch_norm import batch_norm_statistics
from .lazy_torch import nn


class Split(NamedTuple):
    """The names of a state dict's entries by kind, each in the order of the state dict."""

    shared: list[str]
    local: list[str]
    constant: list[str]


def split(names: Iterable[str], local: Collection[str], constant: Collection[str]) -> Split:
    """Divide the entries of a state dict. A constant entry is neither shared nor local."""
    varying = [name for name in names if name not in constant]
    return Split(
        [name for name in varying if name not in local],
        [name for name in varying if name in local],
        [name for name in names if name in constant],
    )


def names_of_parts(model: nn.Module) -> list[str]:
    """Return all names that a pattern may match: of parameters, buffers, and modules that have any."""
    return list(dict.fromkeys(part for name in model.state_dict() for part in _around(name)))


def matching(model: nn.Module, pattern: str) -> frozenset[str]:
    """Return the state dict's entries whose name, or the name of an enclosing module, matches the pattern.

    ``*``, ``?`` and ``[...]`` are as in file names, and a ``*`` also matches dots: ``layer4`` matches
    ``layer4.0.conv1.weight``, ``*.bn1`` matches ``layer4.0.bn1.bias``.
    """
    return frozenset(
        name for name in model.state_dict() if any(fnmatchcase(part, pattern) for part in _around(name))
    )


def freeze(model: nn.Module, patterns: Sequence[str], trained: Sequence[str] = ()) -> frozenset[str]:
    """Freeze what a pattern matches and, if ``trained`` is not empty, what none of ``trained`` matches.

    A tied parameter is frozen with any of its names. Return the matched entries, parameters and buffers.
    """
    entries = frozenset(model.state_dict())
    kept = frozenset().union(*(matching(model, pattern) for pattern in trained)) if trained else entries
    frozen = (entries - kept).union(*(matching(model, pattern) for pattern in patterns))
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if name in frozen:
            parameter.requires_grad_(False)
    return frozen


@contextmanager
def untrained(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Freeze parameters; make them trainable again afterwards."""
    for p in parameters:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in parameters:
            p.requires_grad_(True)


def constant_entries(
    model: nn.Module, frozen: Collection[str] = (), statistics_adapt: bool = False
) -> frozenset[str]:
    """Return the names of the entries that training never changes.

    They are the parameters without ``requires_grad``, and the buffers of frozen modules. A module is frozen
    if none of its parameters is trained, those of its submodules included. For a module without parameters,
    those of the smallest enclosing module with parameters decide. With ``statistics_adapt`` BatchNorm
    statistics are not constant.

    Parameters
    ----------
    model : nn.Module
        The model; ``requires_grad`` is False for parameters that are not trained.
    frozen : Collection[str]
        Further frozen buffers, see `freeze`.
    statistics_adapt : bool
        Whether frozen BatchNorm layers are in training mode.
    """
    names = aliases(model)
    trained = {name for name, p in model.named_parameters(remove_duplicate=False) if p.requires_grad}
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    buffers = {name for name in model.state_dict() if name not in parameters}
    constant = parameters - trained
    for name in buffers:
        owners = [alias.rpartition(".")[0] for alias in names.get(name, (name,))]
        if name in frozen or all(_is_frozen(owner, parameters, trained) for owner in owners):
            constant |= {name, *names.get(name, ())}
    if statistics_adapt:
        constant -= batch_norm_statistics(model)
    return frozenset(constant & model.state_dict().keys())


def still_modules(model: nn.Module, constant: Collection[str]) -> frozenset[str]:
    """Return the names of the modules with a constant buffer of their own.

    They stay in evaluation mode during training, as otherwise the buffer might change.
    """
    if not constant:
        return frozenset()
    return frozenset(
        prefix
        for prefix, module in model.named_modules(remove_duplicate=False)
        if any(name in constant for name, _ in module.named_buffers(prefix, recurse=False))
    )


def train_mode(model: nn.Module, still: Iterable[str]) -> None:
    """Set the model to training mode, except the modules of these names (not their submodules)."""
    model.train()
    for name in still:
        model.get_submodule(name).training = False


def _is_frozen(module: str, parameters: Set[str], trained: Set[str]) -> bool:
    """Return whether the smallest module with parameters, this or an enclosing one, trains none of them."""
    while True:
        prefix = f"{module}." if module else ""
        inside = [name for name in parameters if name.startswith(prefix)]
        if inside:
            return trained.isdisjoint(inside)
        if not module:
            return False
        module = module.rpartition(".")[0]


def _around(name: str) -> Iterator[str]:
    """Yield the names of the modules that enclose an entry, outermost first, and the entry's own."""
    words = name.split(".")
    for count in range(1, len(words) + 1):
        yield ".".join(words[:count])
