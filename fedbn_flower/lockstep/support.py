"""Which models, objectives and clients are supported in lockstep."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from fedbn_flower.clients.base import FedAvgClient
from fedbn_flower.clients.graphs import has_own_method, have_all_modules_a_hook
from fedbn_flower.clients.modules.precision import is_half, precision_of
from fedbn_flower.clients.problems import Problem
from fedbn_flower.clients.training import LocalTask
from fedbn_flower.core.ground.settings import overridden

from ..models.channels_last import channels_last
from .stacked_modules import is_stackable


def reason_not_supported(client: type[FedAvgClient], task: LocalTask, everywhere: bool = False) -> str:
    """Return the reason that clients cannot train in lockstep, or "" if none is visible.

    On a CPU, convolutions gain nothing, and the modules must be stackable; with ``everywhere`` this does not
    count. A custom module class is stackable if it sets ``lockstep_safe = True``: its forward processes each
    example separately and uses only its child modules.
    """
    gains = everywhere or task.train.device != "cpu"
    return next(_client_obstacles(client, task, gains), "") or next(_model_obstacles(task.model, gains), "")


def _client_obstacles(client: type[FedAvgClient], task: LocalTask, gains: bool) -> Iterator[str]:
    """Yield the obstacles other than the model."""
    if task.private:
        yield "each example's gradient is clipped"
    if vars(task.objective).get("elementwise") is not True:
        yield f"objective {task.objective.__name__} does not set `elementwise`"
    if vars(task.loss).get("alike") is not True:
        yield f"loss {task.loss.__name__} does not set `alike`"
    for name in overridden(client, FedAvgClient, _REPLACED):
        yield f"client {client.__name__} overrides {name}"
    if overridden(type(task.problem), Problem, ["predictions"]):
        yield "an example has several predictions"
    if not task.training.stackable:
        yield f"optimiser {task.training.optimizer} cannot step on stacked parameters"
    if task.train.augment:
        yield "examples are augmented"
    inputs, _ = replace(task.train, device="cpu").prepared(np.arange(1))
    if inputs.dtype not in ({torch.float32, torch.int64} if gains else {torch.float32}):
        yield f"inputs are {inputs.dtype}"
    if not gains and any(isinstance(m, nn.Conv2d) for m in task.model.modules()):
        yield "convolutions gain nothing on a CPU"


_OVERRIDABLE = frozenset(
    (
        *("__init__", "evaluate", "held_out_metrics", "load_to_evaluate", "local_entries", "misfit"),
        *("predictor", "still_in"),
    )
)
"""Methods that a client's class may override."""
_REPLACED = [n for n, method in vars(FedAvgClient).items() if callable(method) and n not in _OVERRIDABLE]
"""The others, which lockstep replaces."""


def _model_obstacles(model: nn.Module, gains: bool) -> Iterator[str]:
    if is_half(dtype := precision_of(model)):
        yield f"it computes in {dtype}, whose rounding shows the order of sums"
    if have_all_modules_a_hook():
        yield "hooks on every module"
    if len(list(model.named_modules(remove_duplicate=False))) > len(list(model.modules())):
        yield "a module is used under two names"
    for name, module in model.named_modules():
        if obstacle := _module_obstacle(module, gains):
            yield f"module {name or 'model'} ({type(module).__name__}) {obstacle}"
    parameters = list(model.named_parameters(remove_duplicate=False))
    for name, p in parameters:
        if type(p) is not nn.Parameter or p._backward_hooks or p._post_accumulate_grad_hooks:
            yield f"parameter {name} is of a subclass or has a hook"
    storages = set()
    for name, entry in [*parameters, *model.named_buffers(remove_duplicate=False)]:
        if entry.dtype not in {torch.float32, torch.int64}:
            yield f"{name} is {entry.dtype}"
        if (storage := entry.untyped_storage().data_ptr()) in storages:
            yield f"{name} shares its storage with another entry"
        storages.add(storage)


def _module_obstacle(module: nn.Module, gains: bool) -> str:
    if not gains and not is_stackable(module):
        return "is not supported"
    layout = dict.fromkeys(
        module._forward_pre_hooks, channels_last
    )  # the trial shows that it changes nothing
    if any(value and value != layout for key, value in vars(module).items() if "hook" in key):
        return "has a hook"
    if has_own_method(module):
        return "has a method replaced on the instance"
    return "" if vars(module).get("_compiled_call_impl") is None else "is compiled"
