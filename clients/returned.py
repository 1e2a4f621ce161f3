"""Check what methods of a user's classes return, so that a mistake gets a clear message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from .modules.lazy_torch import nn, torch


class KeepsAtHome(Protocol):
    """A client's class, as far as it declares local entries."""

    @staticmethod
    def local_entries(model: nn.Module) -> Iterable[str]:
        """Return the names of the state dict's entries that never leave the client."""


class WrongResult(TypeError):
    """A method returned a wrong value; the message says which, and what is expected."""

    def __init__(self, of: object, method: str, returned: object, expected: str) -> None:
        cls = of if isinstance(of, type) else type(of)
        super().__init__(f"{cls.__name__}.{method} returned {described(returned)}, expected {expected}")


def described(value: object) -> str:
    """Describe a value in a few words: a tensor by its shape, most others by their type."""
    if value is None or isinstance(value, str | bool | int | float):
        return repr(value)
    if isinstance(value, torch.Tensor):
        gradient = "" if value.requires_grad else " without gradient"
        return f"a tensor of shape {tuple(value.shape)}{gradient}"
    if isinstance(value, tuple) and len(value) < 5:
        return f"({', '.join(map(described, value))})"
    if isinstance(value, list | tuple) and value:
        kinds = sorted({type(one).__name__ for one in value})
        return f"a {type(value).__name__} of {', '.join(kinds)}"
    if isinstance(value, Mapping) and value:
        return f"{{{', '.join(f'{name!r}: {described(one)}' for name, one in value.items())}}}"
    return f"an object of type {type(value).__name__}"


def kept_at_home(client: type[KeepsAtHome], model: nn.Module) -> frozenset[str]:
    """Return the names from `local_entries`, which may be a set, a list or any other iterable of names.

    Raises
    ------
    WrongResult
        For anything else, including a single string.
    """
    given: object = client.local_entries(model)
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | torch.Tensor):
        given = list(given)
        if all(isinstance(name, str) for name in given):
            return frozenset(given)
    raise WrongResult(client, "local_entries", given, "a set of names of the state dict's entries")
