"""Build a model by name, with the run's initial weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from inspect import signature

from numpy.typing import NDArray

from fedbn_flower.clients.modules.lazy_torch import nn, torch
from fedbn_flower.clients.modules.precision import compute_in

from ..config.registry import MODEL, as_user_error
from ..core.errors import UserError, not_allowed
from ..core.input_spec import InputSpec
from ..core.process_cache import process_cache

DTYPES = frozenset({"float16", "float32", "float64", "bool", "uint8", "int8", "int16", "int32", "int64"})
"""The dtypes of torch that an entry of a state dict may have."""


@process_cache(maxsize=8)
def initial_model(
    name: str,
    spec: InputSpec,
    softmax_output: bool,
    seed: int,
    device: str = "cpu",
    precision: str = "fp32",
) -> tuple[nn.Module, dict[str, NDArray]]:
    """Return a module of this process and the run's initial state dict, the same in every process."""
    from ..models.channels_last import lay_out  # imports PyTorch

    model = build_model(name, spec, softmax_output, seed)
    initial = {name: entry.numpy().copy() for name, entry in model.state_dict().items()}
    if device == "cpu":
        lay_out(model, spec)
    compute_in(model, precision, device)
    return model.to(device), initial


def build_model(name: str, spec: InputSpec, softmax_output: bool, seed: int) -> nn.Module:
    """Build the network with the run's initial weights, the same in every process for the same seed.

    Raises
    ------
    UserError
        When its function raises, when it has lazy modules that a forward pass does not materialise, or
        entries of a dtype that NumPy lacks or that cannot be averaged.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        with warnings.catch_warnings(action="ignore"):  # images too small are refused by name, later
            with as_user_error("model", name):
                model = _made(name, spec)
            if not isinstance(model, nn.Module):
                raise not_allowed("model", name, f"a function that returns an nn.Module, not {model!r}")
            if _lazy_entries(model):
                _materialise(model, name, spec)
            for entry, value in model.state_dict().items():
                if str(value.dtype).removeprefix("torch.") not in DTYPES:
                    raise UserError(f"model: {name!r} has {entry} of {value.dtype}, which cannot be averaged")
    if not softmax_output:
        return model
    wrapped = nn.Sequential(model, nn.Softmax(dim=-1))
    if isinstance(head := getattr(model, "head", None), str):
        wrapped.head = f"0.{head}"  # type: ignore[assignment]
    return wrapped


def _made(name: str, spec: InputSpec) -> object:
    """Call the function of that name with the shape of the data, or without if it needs no argument."""
    function: Callable[..., nn.Module] = MODEL.find(name)
    if isinstance(function, nn.Module):
        made = f"function that makes a {type(function).__name__}"
        raise UserError(f"model: a module itself is not allowed; expected a {made}")
    try:
        arguments = signature(function).parameters.values()
    except ValueError:  # not every callable tells
        return function(spec)
    if any(a.default is a.empty and a.kind not in (a.KEYWORD_ONLY, a.VAR_KEYWORD) for a in arguments):
        return function(spec)
    return function()


def does_not_fit(name: str, spec: InputSpec, error: Exception) -> UserError:
    """The error for a model that raised on inputs of this shape."""
    return UserError(f"model: {name!r} does not fit inputs of {spec}: {' '.join(str(error).split())}")


def _lazy_entries(model: nn.Module) -> list[str]:
    entries = [*model.named_parameters(), *model.named_buffers()]
    return [name for name, entry in entries if torch.nn.parameter.is_lazy(entry)]


def _materialise(model: nn.Module, name: str, spec: InputSpec) -> None:
    """Materialise lazy modules by one forward pass in evaluation mode, which changes no statistics."""
    model.eval()
    try:
        with torch.no_grad():
            model(spec.zeros(2))
    except Exception as error:
        raise does_not_fit(name, spec, error) from error
    model.train()
    if lazy := _lazy_entries(model):
        raise UserError(f"model: {name!r} has lazy modules that its forward does not use: {', '.join(lazy)}")
