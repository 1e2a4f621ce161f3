"""Optimisers of local training: those of torch.optim by name, in lower case, with their arguments.

``adamw`` and ``adamw:betas=0.9/0.99,eps=1e-6`` are optimisers. Learning rate, momentum and weight decay are
keys of the run: every optimiser that has such an argument gets the key's value.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Any, Protocol

from fedbn_flower.core.ground.settings import finite_number

from .lazy_torch import torch

FORM = "NAME or NAME:ARGUMENT=VALUE,... of torch.optim in lower case, numbers of a tuple joined by /"

PLAIN = "sgd"
"""The default, whose steps are those of `Sgd`."""
KEYS = {"lr": "client-lr", "momentum": "client-momentum", "weight_decay": "weight-decay"}
"""Arguments that are keys of the run."""
_NOT_SETTINGS = {"params", "maximize", "foreach", "fused", "capturable", "differentiable"}
"""Arguments that say how a step is computed, or that it ascends."""

WITHOUT_PLAIN_STEP = {
    "lbfgs": "LBFGS computes the loss several times in a step, of which local training computes it once",
    "sparseadam": "SparseAdam takes sparse gradients, and those of local training are dense",
}
"""Those that cannot train here, with the reason."""

STACKABLE = frozenset(
    {"adadelta", "adagrad", "adam", "adamax", "adamw", "asgd", "nadam", "radam", "rmsprop", "sgd"}
)
"""Those that move each entry by its own gradients and by the number of the step only.

So a step on stacked parameters is a step on each. Adafactor and Muon use norms or products of a tensor.
Rprop goes by the signs of gradients, which rounding decides near 0.
"""


class Optimizer(Protocol):
    """The methods of an optimiser that the training loop uses."""

    def step(self) -> object:
        """Update the parameters from their gradients."""

    def zero_grad(self) -> None:
        """Clear the gradients."""


class Sgd:
    """Bit-identical to `torch.optim.SGD`, without its overhead, which exceeds the cost of a small step."""

    def __init__(
        self, parameters: list[torch.Tensor], learning_rate: float, momentum: float, weight_decay: float
    ) -> None:
        self.parameters = parameters
        self.param_groups = [{"params": parameters}]  # for GradScaler
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.buffers: dict[torch.Tensor, torch.Tensor] = {}

    def step(self) -> None:
        with torch.no_grad():
            trained = [p for p in self.parameters if p.grad is not None]
            if not trained:
                return
            steps = [p.grad for p in trained if p.grad is not None]
            if self.weight_decay:
                steps = list(torch._foreach_add(steps, trained, alpha=self.weight_decay))
            if self.momentum:
                for p, step in zip(trained, steps, strict=True):
                    if p in self.buffers:
                        self.buffers[p].mul_(self.momentum).add_(step)
                    else:
                        self.buffers[p] = step.clone()
                steps = [self.buffers[p] for p in trained]
            torch._foreach_add_(trained, steps, alpha=-self.learning_rate)

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = None


@cache
def optimizers() -> Mapping[str, type[torch.optim.Optimizer]]:
    """Return all of torch.optim by name."""
    base = torch.optim.Optimizer
    return {
        name.lower(): cls
        for name, cls in sorted(vars(torch.optim).items())
        if isinstance(cls, type) and issubclass(cls, base) and cls is not base
    }


def name_of(text: str) -> str:
    """Return the name of an optimiser, without its arguments."""
    return text.partition(":")[0]


def make_optimizer(
    text: str, parameters: Iterable[torch.Tensor], learning_rate: float, momentum: float, weight_decay: float
) -> Optimizer:
    """Return the optimiser with a new state.

    Raises
    ------
    ValueError
        When it is unknown, or does not take its arguments or these parameters; the message says what is
        expected.
    """
    if text == PLAIN:
        return Sgd(list(parameters), learning_rate, momentum, weight_decay)
    name, arguments = name_of(text), dict(arguments_of(text))
    of_run = {"lr": learning_rate, "momentum": momentum, "weight_decay": weight_decay}
    arguments |= {argument: value for argument, value in of_run.items() if argument in _defaults(name)}
    try:
        return optimizers()[name](parameters, **arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(_refusal(name, error)) from error


def check_optimizer(text: str, learning_rate: float, momentum: float, weight_decay: float) -> None:
    """Try a step if the optimiser has arguments.

    Raises
    ------
    ValueError
        As `make_optimizer`; also for an optimiser that cannot do a plain step.
    """
    if text == PLAIN or not arguments_of(text):
        return
    weights = torch.zeros(1, 1, requires_grad=True)  # Muon takes matrices only
    weights.grad = torch.ones(1, 1)
    optimizer = make_optimizer(text, [weights], learning_rate, momentum, weight_decay)
    try:
        optimizer.step()
    except Exception as error:
        raise ValueError(_refusal(name_of(text), error)) from error


def _refusal(name: str, error: Exception) -> str:
    return f"what torch.optim.{optimizers()[name].__name__} takes: {' '.join(str(error).split())}"


def unused_keys(text: str) -> set[str]:
    """Return the `KEYS` for which the optimiser has no argument."""
    return {key for argument, key in KEYS.items() if argument not in _defaults(name_of(text))}


def torch_defaults(text: str) -> dict[str, float]:
    """Return torch's defaults of the optimiser by key, for those of `KEYS` that it has."""
    defaults = _defaults(name_of(text))
    return {key: float(defaults[argument]) for argument, key in KEYS.items() if argument in defaults}


@lru_cache(maxsize=64)
def arguments_of(text: str) -> Mapping[str, Any]:
    """Return the arguments in the text by name, with their types.

    Raises
    ------
    ValueError
        For an unknown optimiser or argument, or another form; the message says what is expected.
    """
    name, colon, words = text.partition(":")
    if name in WITHOUT_PLAIN_STEP:
        raise ValueError(f"another one: {WITHOUT_PLAIN_STEP[name]}")
    if name not in optimizers():
        raise ValueError(f"one of {', '.join(sorted(optimizers().keys() - WITHOUT_PLAIN_STEP.keys()))}")
    defaults, found = _defaults(name), {}
    for word in words.split(",") if colon else ():
        argument, equals, value = (part.strip() for part in word.partition("="))
        if not (argument and equals and value) or argument in found:
            raise ValueError(f"{name}:ARGUMENT=VALUE,..., each argument once")
        if argument in KEYS:
            raise ValueError(f"{argument} of the optimiser under its key, {KEYS[argument]}")
        if argument not in defaults:
            raise ValueError(f"arguments of {name}: {', '.join(sorted(defaults.keys() - KEYS.keys()))}")
        found[argument] = _value(argument, value, defaults[argument])
    return found


@lru_cache(maxsize=64)
def _defaults(name: str) -> Mapping[str, Any]:
    """Return the defaults of an optimiser's arguments that are settings or keys."""
    parameters = inspect.signature(optimizers()[name]).parameters.values()
    return {one.name: one.default for one in parameters if one.name not in _NOT_SETTINGS}


def _value(argument: str, text: str, default: object) -> Any:
    """Return the value of an argument, in the type of its default."""
    if isinstance(default, bool):
        if text not in ("true", "false"):
            raise ValueError(f"{argument}=true or {argument}=false")
        return text == "true"
    if isinstance(default, tuple):
        numbers = tuple(map(finite_number, text.split("/")))
        if len(numbers) != len(default) or None in numbers:
            raise ValueError(f"{argument} as {len(default)} numbers joined by /")
        return tuple(map(float, numbers))  # type: ignore[arg-type]
    if isinstance(default, int | float):
        if (number := finite_number(text)) is None:
            raise ValueError(f"a number as {argument}")
        return number
    return text
