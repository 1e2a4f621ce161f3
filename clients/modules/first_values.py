"""The state of a module outside its state dict: buffers that are not persistent, and attributes.

One module trains all clients of a process. Their entries are loaded; any other state that a pass changes
would leak from one client to the next in the same process. So it is reset to its first value whenever a
client begins, and whenever a model is evaluated, as in a new model loaded from its entries.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .lazy_torch import nn, torch

KEPT = "_first_values"
"""The attribute of a model that has them."""


class FirstValues:
    """The current state of a model's modules; mutable values are copied.

    Modules, parameters and persistent buffers stay references. Hooks are kept, and so are values that cannot
    be copied.
    """

    def __init__(self, model: nn.Module) -> None:
        self.entries = [*model.modules(), *model.state_dict(keep_vars=True).values()]
        own = vars(nn.Module()).keys() | {KEPT}
        memo = self._memo()
        self.states = [
            state
            for module in model.modules()
            for state in (
                _Held(vars(module), own, memo),
                _Held(module._buffers, self._persistent(module), memo),
            )
        ]
        self.copies = any(state.copied for state in self.states)

    @staticmethod
    def _persistent(module: nn.Module) -> set[str]:
        return {name for name in module._buffers if name not in module._non_persistent_buffers_set}

    def _memo(self) -> dict[int, Any]:
        return {id(entry): entry for entry in self.entries}

    def restore(self) -> None:
        """Restore the first values, and remove attributes that were added later."""
        memo = self._memo() if self.copies else {}
        for state in self.states:
            state.restore(memo)

    def changed(self) -> list[str]:
        """Return the names of the attributes and buffers that have other values now."""
        return sorted({name for state in self.states for name in state.changed()})


class _Held:
    """The values of a namespace, except some names."""

    def __init__(self, space: dict[str, Any], but: Any, memo: dict[int, Any]) -> None:
        self.space = space
        self.known = {*space, *but}
        self.same: dict[str, Any] = {}
        self.copied: dict[str, tuple[Any, Any]] = {}
        for name in space.keys() - but:
            value = space[name]
            try:
                copied = value if _is_fixed(value) else copy.deepcopy(value, memo)
            except Exception:  # objects refuse copies by any exception
                continue
            if copied is value:
                self.same[name] = value
            else:
                self.copied[name] = value, copied

    def restore(self, memo: dict[int, Any]) -> None:
        for name in self._new():
            del self.space[name]
        self.space.update(self.same)
        for name, (value, copied) in self.copied.items():
            self.space[name] = _restored(value, copy.deepcopy(copied, memo))

    def changed(self) -> Iterator[str]:
        yield from self._new()
        for name, value in {**self.same, **{n: copied for n, (_, copied) in self.copied.items()}}.items():
            if name not in self.space or not _alike(value, self.space[name]):
                yield name

    def _new(self) -> list[str]:
        if self.space.keys() <= self.known:
            return []
        return [n for n in self.space.keys() - self.known if not callable(self.space[n])]


def _is_fixed(value: Any) -> bool:
    """Whether a value is kept by reference: callables, and PyTorch's objects other than tensors."""
    of_torch = type(value).__module__.startswith("torch.")
    return callable(value) or (of_torch and not isinstance(value, torch.Tensor | torch.Generator))


def _restored(value: Any, fresh: Any) -> Any:
    """Return the value with the content of a fresh copy, in place if hooks may hold the same object."""
    if isinstance(value, torch.Tensor) and value.shape == fresh.shape:
        with torch.no_grad():
            return value.copy_(fresh)
    if isinstance(value, dict | set):
        value.clear()
        value.update(fresh)
    elif hasattr(value, "extend") and hasattr(value, "clear"):  # a list, a deque, a bytearray, an array
        value.clear()
        value.extend(fresh)
    else:
        return fresh
    return value


def _alike(one: Any, other: Any) -> bool:
    if one is other or callable(one) or type(one) is not type(other):
        return one is other or callable(one)
    if isinstance(one, torch.Tensor | np.ndarray):
        return one.shape == other.shape and bool((one == other).all())
    if isinstance(one, dict):
        return _alike([*one.items()], [*other.items()])
    if isinstance(one, Sequence | deque) and not isinstance(one, str | bytes):
        return len(one) == len(other) and all(map(_alike, one, other))
    return _alike(vars(one), vars(other)) if hasattr(one, "__dict__") else bool(one == other)


def keep_first_values(model: nn.Module) -> None:
    """Store the current state of a model for `begin_anew`."""
    vars(model)[KEPT] = FirstValues(model)


def begin_anew(model: nn.Module) -> None:
    """Reset a model's state outside its state dict to that at `keep_first_values`."""
    if first := vars(model).get(KEPT):
        first.restore()


@contextmanager
def carrying_on(model: nn.Module) -> Iterator[None]:
    """Disable `begin_anew` within the block."""
    first = vars(model).pop(KEPT)
    try:
        yield
    finally:
        vars(model)[KEPT] = first
