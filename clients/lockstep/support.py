"""Which models, objectives and clients are known to train in lockstep as they train alone."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from ..base import FedAvgClient, LocalTask
from ..problems import Problem
from .stacked_modules import STACKED

EXAMPLE_WISE = frozenset(
    {
        nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d,
        nn.AvgPool1d, nn.AvgPool2d, nn.CELU, nn.ELU, nn.Flatten, nn.GELU, nn.Hardshrink, nn.Hardsigmoid,
        nn.Hardswish, nn.Hardtanh, nn.Identity, nn.LeakyReLU, nn.LogSigmoid, nn.LogSoftmax, nn.MaxPool1d,
        nn.MaxPool2d, nn.Mish, nn.ReLU, nn.ReLU6, nn.SELU, nn.Sequential, nn.SiLU, nn.Sigmoid, nn.Softmax,
        nn.Softplus, nn.Softshrink, nn.Softsign, nn.Tanh, nn.Tanhshrink, nn.Threshold, nn.ZeroPad2d,
    }
)  # fmt: skip
"""Modules without entries of their own that treat each example alone, if `CONDITIONS` allows."""

CONDITIONS: dict[type[nn.Module], Callable[[Any], bool]] = {
    nn.BatchNorm1d: lambda m: m.affine and m.track_running_stats and m.momentum is not None,
    nn.BatchNorm2d: lambda m: m.affine and m.track_running_stats and m.momentum is not None,
    nn.Conv2d: lambda m: m.padding_mode == "zeros",
    nn.Flatten: lambda m: m.start_dim >= 1,
    nn.LogSoftmax: lambda m: m.dim in {1, -1},
    nn.Softmax: lambda m: m.dim in {1, -1},
}
"""Modules that are served only if they are set so."""


def why_unknown(client: type[FedAvgClient], task: LocalTask) -> str:
    """What keeps clients from training in lockstep, in words; empty if nothing that can be seen does.

    A class of one's own is known if it says ``lockstep_safe = True`` of itself: its forward treats each
    example alone and uses only its child modules. Convolutions gain nothing on a CPU.
    """
    return next(_foreign(client, task), "") or next(_obstacles(task.model), "")


def _foreign(client: type[FedAvgClient], task: LocalTask) -> Iterator[str]:
    """What of all but the model keeps them from it."""
    if vars(task.objective).get("elementwise") is not True:
        yield f"objective {task.objective.__name__} does not say that it is elementwise"
    if vars(task.loss).get("alike") is not True:
        yield f"loss {task.loss.__name__} does not say that it is alike for all clients"
    for name, method in vars(FedAvgClient).items():
        if name not in _OWN_OF_CLIENTS and callable(method) and getattr(client, name) is not method:
            yield f"client {client.__name__} has a {name} of its own"
    if type(task.problem).predictions is not Problem.predictions:
        yield "an example holds several predictions"
    if task.train.augment:
        yield "examples are augmented"
    inputs, _ = replace(task.train, device="cpu").prepared(np.arange(1))
    if inputs.dtype != torch.float32:
        yield f"inputs are {inputs.dtype}"
    if task.train.device == "cpu" and any(isinstance(m, nn.Conv2d) for m in task.model.modules()):
        yield "convolutions gain nothing on a CPU"


_OWN_OF_CLIENTS = frozenset({"__init__", "evaluate", "held_out_metrics", "load_to_evaluate", "local_entries"})
"""What a client's class may decide for itself; the rest is what lockstep stands in for."""


def _obstacles(model: nn.Module) -> Iterator[str]:
    everywhere = vars(torch.nn.modules.module).items()
    if any(value for key, value in everywhere if key.startswith("_global_") and "hook" in key):
        yield "hooks on every module"
    if len(list(model.named_modules(remove_duplicate=False))) > len(list(model.modules())):
        yield "a module is used under two names"
    for name, module in model.named_modules():
        if obstacle := _module_obstacle(module):
            yield f"module {name or 'model'} ({type(module).__name__}) {obstacle}"
    parameters = list(model.named_parameters(remove_duplicate=False))
    for name, p in parameters:
        if type(p) is not nn.Parameter or p._backward_hooks or p._post_accumulate_grad_hooks:
            yield f"parameter {name} is of a type of its own or has a hook"
        if not p.requires_grad:
            yield f"parameter {name} is not trained"
    places = set()
    for name, entry in [*parameters, *model.named_buffers(remove_duplicate=False)]:
        if entry.dtype not in {torch.float32, torch.int64}:
            yield f"{name} is {entry.dtype}"
        if (place := entry.untyped_storage().data_ptr()) in places:
            yield f"{name} shares its memory with another entry"
        places.add(place)


def _module_obstacle(module: nn.Module) -> str:
    if not _is_known(module):
        return "is not known to be served"
    if any(value for key, value in vars(module).items() if "hook" in key):
        return "has a hook"
    if any(callable(getattr(type(module), key, None)) for key in vars(module)):
        return "has a method of its own"
    return "" if vars(module).get("_compiled_call_impl") is None else "is compiled"


def _is_known(module: nn.Module) -> bool:
    kind = type(module)
    entries = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    return (
        (kind in STACKED and not list(module.children()))
        or (not entries and (kind in EXAMPLE_WISE or vars(kind).get("lockstep_safe") is True))
    ) and (kind not in CONDITIONS or CONDITIONS[kind](module))
