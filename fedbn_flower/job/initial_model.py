"""Build a model by name, with the run's initial weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, NamedTuple

from numpy.typing import NDArray

from fedbn_flower.clients.modules.arrays import to_array, trainable_names
from fedbn_flower.clients.modules.first_values import FirstValues, keep_first_values
from fedbn_flower.clients.modules.frozen import constant_entries, freeze, matching, names_of_parts
from fedbn_flower.clients.modules.lazy_torch import nn, torch
from fedbn_flower.clients.modules.precision import accept_float32, compute_in
from fedbn_flower.clients.modules.surroundings import usual_surroundings
from fedbn_flower.clients.returned import described

from ..config.run_config import RunConfig
from ..core.errors import UserError, not_allowed
from ..core.input_spec import InputSpec
from ..core.process_cache import process_cache
from ..core.text import hint
from ..models.integers import DECLARED, error_on, fitted, may_be_integers
from ..models.named import MODEL
from ..models.weights import LoadedWeights, load_weights
from ..names import as_user_error
from .normalisation import UNCHANGED, Normalisation

DTYPES = frozenset(
    {"bfloat16", "float16", "float32", "float64", "bool", "uint8", "int8", "int16", "int32", "int64"}
)
"""The torch dtypes that an entry of a state dict may have."""
TORCHVISION = "torchvision.models"
MAX_NAMES = 12
"""The most names that a message shows."""


class Start(NamedTuple):
    """The initial weights of a model, and which of its parts train: the keys of these names."""

    init: str = ""
    init_strict: bool = False
    freeze: str = ""
    train: str = ""
    frozen_bn: str = "eval"

    @classmethod
    def of(cls, config: RunConfig) -> Start:
        return cls(*(getattr(config, key) for key in cls._fields))


FROM_SCRATCH = Start()


@dataclass(frozen=True, eq=False)
class InitialModel:
    """A model before a run, one object per process.

    Parameters
    ----------
    module : nn.Module
        The module, on its device; it is shared, so clients load all entries before use.
    entries : dict[str, NDArray]
        The initial state dict, the same in every process.
    constant : frozenset[str]
        The entries that never change, see `constant_entries`.
    weights : LoadedWeights, optional
        The weights taken from ``init``.
    spec : InputSpec
        The specification of its inputs, which may be integers, and its outputs.
    halves : frozenset[str]
        The entries that are bfloat16 in the module; in ``entries`` they are float32, as NumPy lacks it.
    """

    module: nn.Module
    entries: dict[str, NDArray]
    constant: frozenset[str]
    weights: LoadedWeights | None
    spec: InputSpec
    halves: frozenset[str] = frozenset()


@usual_surroundings()
def new_model(
    name: str,
    spec: InputSpec,
    softmax_output: bool,
    seed: int,
    device: str = "cpu",
    precision: str = "fp32",
    start: Start = FROM_SCRATCH,
    normalisation: Normalisation = UNCHANGED,
) -> InitialModel:
    """Return a model with its initial weights; parts that do not train are frozen.

    BatchNorm layers are replaced before ``init`` is read, whose entries fit if names and shapes are the same.

    Raises
    ------
    UserError
        As `build_model` and `load_weights`; when a pattern matches nothing, or nothing is left to train.
    """
    from ..models.channels_last import lay_out  # imports PyTorch

    model = _built(name, spec, seed, normalisation)
    first = FirstValues(model)
    weights = load_weights(model, start.init, start.init_strict) if start.init else None
    frozen = _frozen(model, start)
    if softmax_output:
        model, frozen = _with_softmax(model), frozenset(f"0.{entry}" for entry in frozen)
    constant = constant_entries(model, frozen, start.frozen_bn == "adapt")
    state = model.state_dict()
    entries = {name: to_array(entry) for name, entry in state.items()}
    halves = frozenset(name for name, entry in state.items() if entry.dtype == torch.bfloat16)
    spec = fitted(model, spec)
    if device == "cpu":
        lay_out(model, spec)  # channels last, in which most convolutions are faster on a CPU
    compute_in(model, precision, device)
    first.restore()
    keep_first_values(model.to(device))
    return InitialModel(model, entries, constant, weights, spec, halves)


initial_model = process_cache(maxsize=8)(new_model)
"""The same, one object per process."""


def _frozen(model: nn.Module, start: Start) -> frozenset[str]:
    """Freeze the entries that the patterns select; return the names that match."""
    patterns = {
        key: _patterns(key, text, model) for key, text in (("freeze", start.freeze), ("train", start.train))
    }
    frozen = freeze(model, patterns["freeze"], patterns["train"])
    if frozen and not trainable_names(model):
        key, value = ("freeze", start.freeze) if start.freeze else ("train", start.train)
        raise not_allowed(key, value, "patterns that leave a parameter to train")
    return frozen


def _patterns(key: str, text: str, model: nn.Module) -> Sequence[str]:
    patterns = [pattern.strip() for pattern in text.split(",") if pattern.strip()]
    for pattern in patterns:
        if not matching(model, pattern):
            names = names_of_parts(model)
            top = list(dict.fromkeys(name.partition(".")[0] for name in names))
            wanted = f"a name of a module or parameter of the model{hint(pattern, names)}"
            raise not_allowed(key, pattern, f"{wanted}; at the top are {', '.join(top[:MAX_NAMES])}")
    return patterns


def build_model(
    name: str,
    spec: InputSpec,
    softmax_output: bool,
    seed: int,
    normalisation: Normalisation = UNCHANGED,
) -> nn.Module:
    """Build the network with random weights, the same in every process for the same seed.

    Raises
    ------
    UserError
        When its function raises, lazy modules remain after a forward pass, or an entry has a dtype that
        cannot be averaged; as `Normalisation.applied` does.
    """
    model = _built(name, spec, seed, normalisation)
    return _with_softmax(model) if softmax_output else model


@usual_surroundings()
def _built(name: str, spec: InputSpec, seed: int, normalisation: Normalisation) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        with warnings.catch_warnings(action="ignore"):  # too small images are refused later, with a message
            with as_user_error("model", name):
                try:
                    model = _made(name, spec)
                except ValueError as error:  # a built-in function says what it expects
                    if name in MODEL.names and not isinstance(error, UserError):
                        raise not_allowed("model", name, str(error).removeprefix("expected ")) from error
                    raise
            wanted = "a function that returns an nn.Module, not"
            if not isinstance(model, nn.Module):
                raise not_allowed("model", name, f"{wanted} {described(model)}")
            if scripted := [one for one in model.modules() if isinstance(one, torch.jit.ScriptModule)]:
                raise not_allowed("model", name, f"{wanted} {described(scripted[0])}")
            if _lazy_entries(model):
                _materialise(model, name, spec)
            if odd := [entry for entry in model.state_dict() if entry.endswith("_extra_state")]:
                wanted = "one without get_extra_state: it cannot be averaged; a buffer can"
                raise not_allowed("model", name, f"{wanted} ({odd[0]})")
            for entry, value in model.state_dict().items():
                is_dense = value.layout == torch.strided
                kind = "the device meta" if value.is_meta else str(value.dtype if is_dense else value.layout)
                if kind.removeprefix("torch.") not in DTYPES:
                    raise UserError(f"model: {name!r} has {entry} of {kind}, which cannot be averaged")
        model = normalisation.applied(model)
    first = FirstValues(model)
    accept_float32(model, spec.zeros(2))
    first.restore()
    return model


def _with_softmax(model: nn.Module) -> nn.Module:
    wrapped = nn.Sequential(model, nn.Softmax(dim=-1))
    if (declared := getattr(model, DECLARED, None)) is not None:
        wrapped.integer_inputs = declared
    if isinstance(head := getattr(model, "head", None), str):
        wrapped.head = f"0.{head}"  # type: ignore[assignment]
    return wrapped


def _made(name: str, spec: InputSpec) -> object:
    """Call the model's function, with the shape of the data if it takes an argument.

    torchvision's functions get the number of outputs and no weights, so nothing is downloaded.
    """
    function: Callable[..., Any] = MODEL.find(name)
    if isinstance(function, nn.Module):
        made = f"function that makes a {type(function).__name__}"
        raise UserError(f"model: a module itself is not allowed; expected a {made}")
    if getattr(function, "__module__", "").startswith(TORCHVISION):
        return function(num_classes=spec.outputs)
    try:
        arguments = signature(function).parameters.values()
    except ValueError:  # not every callable has a signature
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
    of_integers = replace(spec, integers=True)
    error = error_on(model, of_integers if getattr(model, DECLARED, False) else spec)
    if error and not (may_be_integers(spec) and error_on(model, of_integers) is None):
        raise does_not_fit(name, spec, error) from error
    if lazy := _lazy_entries(model):
        raise UserError(f"model: {name!r} has lazy modules that its forward does not use: {', '.join(lazy)}")
