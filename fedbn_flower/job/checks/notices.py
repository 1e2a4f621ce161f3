"""Warn, before the first round, of settings that are valid but probably not intended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import floor, log10
from types import FunctionType
from typing import Any

import numpy as np

from fedbn_flower.clients import (
    Classification,
    FedAvgClient,
    FedBNClient,
    Loss,
    NextCharacter,
    Objective,
    Regression,
)
from fedbn_flower.clients.modules.batch_norm import batch_norm_layers, batch_norm_statistics
from fedbn_flower.clients.modules.lazy_torch import nn, torch
from fedbn_flower.clients.returned import kept_at_home

from ... import annexes
from ...config.named_algorithms import EXTENSION, extension_names
from ...config.run_config import RunConfig
from ...core.ground.settings import overridden
from ...core.text import listed
from ...data.events import rare_event
from ...data.images.kind import Images
from ...data.sources import ARRAYS
from ...extensions import Extension
from ...models.named import models_named
from ...names import CLIENT, LOSS, OBJECTIVE, STRATEGY, Registry, parts
from ..inputs import RunInputs
from ..what_is_learnt import MAX_SHOWN
from .model_fit import clients_of_one_example, of_few_cases
from .own_state import warn_about_own_state

METHODS = (FunctionType, staticmethod, classmethod, property)


def notices(inputs: RunInputs) -> list[str]:
    """Return the warnings of this run, one line each."""
    found = (
        *_warn_about_clients_data(inputs),
        *_warn_about_outputs(inputs),
        *_warn_about_target_scale(inputs),
        *_warn_about_weights(inputs),
        *_warn_about_policy(inputs),
        *_warn_about_written_classes(inputs.config),
        *_warn_about_evaluation(inputs),
        *of_few_cases(inputs),
        *warn_about_own_state(inputs),
    )
    return [line for line in found if line]


def warnings_of_data(inputs: RunInputs) -> Iterator[str]:
    """Yield warnings of a run's or a site's data: targets or inputs that are probably not intended.

    And of what the accuracy of a rare event decides.
    """
    if inputs.dataset.has_examples:
        for check in annexes.brought("checks").values():
            yield from check(inputs)
        yield from filter(None, _warn_about_rare_event(inputs))


def _warn_about_clients_data(inputs: RunInputs) -> Iterator[str]:
    config, dataset = inputs.config, inputs.dataset
    if not dataset.has_examples:
        return
    yield from warnings_of_data(inputs)
    yield from _warn_about_units(inputs)
    if inputs.config.partitioning.kind == "natural":
        yield from _warn_about_few_sites(inputs)
    local = inputs.evaluates_locally
    if inputs.prepares_publicly:
        if not config.dp_scale:
            yield (
                "dp-scale: none, so numbers of the table stay as they are; name the mean and deviation of "
                "each column that are known without looking at the rows, COLUMN=MEAN:DEVIATION"
            )
    elif dataset.kind.prepares_by_client and not (local or config.normalize):
        why = "" if config.eval_data == "global" else f", since {inputs.who_lacks} no held-out examples"
        yield (
            f"eval-data: 'global'{why}: each client's model is evaluated on all clients' examples, "
            "standardised by this client's rows; 'local' evaluates it on this client's examples only"
        )
    if single := clients_of_one_example(inputs):
        yield (
            f"partition: {len(single)} of {config.num_clients} clients (the first is {single[0]}) have one "
            f"example only, and {config.model!r} cannot train on one (BatchNorm needs two): they fail in "
            "every round"
        )


def rare_by_accuracy(inputs: RunInputs, what: str, does: str) -> str:
    """Return a line where the accuracy of a rare event decides what AUROC ``does`` better; else nothing."""
    if not (rare := rare_event_by_accuracy(inputs)):
        return ""
    return f"metrics: accuracy, by which {what}, says little of {rare}; --metrics auroc {does} by AUROC"


def rare_event_by_accuracy(inputs: RunInputs) -> str:
    """Return what a rare event is of a run that is compared by accuracy; under privacy nothing is said."""
    by_accuracy = inputs.config.dp == "none" and inputs.dataset.problem.compared_by == "accuracy"
    return rare_event(inputs.dataset) if by_accuracy else ""


def _warn_about_rare_event(inputs: RunInputs) -> Iterator[str]:
    if inputs.config.keeps_best:
        yield rare_by_accuracy(inputs, "the best round is chosen", "chooses it")
    target = inputs.config.target_value
    if (
        target
        and target[0] == "accuracy"
        and inputs.config.dp == "none"
        and (rare := rare_event(inputs.dataset))
    ):
        yield f"target: accuracy says little of {rare}; with --metrics auroc a target can be auroc=0.8"


def _warn_about_few_sites(inputs: RunInputs) -> Iterator[str]:
    """Yield a warning if some natural clients of the data take no part."""
    groups, names = inputs.dataset.train.groups, inputs.partitions.names
    others = sorted({*(groups.tolist() if groups is not None else ())} - {*names})
    if others:
        every = len(names) + len(others)
        yield (
            f"num-clients: {len(names)} of {every} sites take part; left out: {listed(others, MAX_SHOWN)} "
            f"(without num-clients all {every} do)"
        )


def _warn_about_units(inputs: RunInputs) -> Iterator[str]:
    units, train = inputs.protected_units, inputs.partitions.train
    if units is None:
        return
    found = Counter(unit for i in range(len(train.sizes)) for unit in {*units[train[i]].tolist()})
    if several := sum(count > 1 for count in found.values()):
        yield (
            f"dp-unit: {several} of {len(found)} values of {inputs.config.dp_unit!r} have rows at several "
            "clients: each client protects its own rows of them, and their epsilons add up"
        )


def _warn_about_weights(inputs: RunInputs) -> Iterator[str]:
    weights = inputs.initial().weights
    if weights and not weights.complete:
        yield str(weights)


def _warn_about_policy(inputs: RunInputs) -> Iterator[str]:
    config, initial = inputs.config, inputs.initial()
    for name in parts(config.client):
        client = CLIENT.find(name)
        local = kept_at_home(client, initial.module)
        of_batch_norm = client.decides == FedBNClient.decides and not batch_norm_layers(initial.module)
        keeps = overridden(client, FedAvgClient, ["local_entries"])
        if not (keeps or of_batch_norm) or local - initial.constant:
            continue
        as_shared = ": it is 'shared' here" if name == config.client else ""
        frozen = ", since all of that is frozen" if local else ""
        advice = ""
        if local & batch_norm_statistics(initial.module):
            advice = "; with frozen-bn 'adapt' BatchNorm statistics stay and adapt"
        norm = "" if config.norm in ("keep", client.norm) else f" with norm {config.norm!r}"
        does = "keeps nothing at home of" if keeps else "finds no BatchNorm in"
        yield f"client: {name!r} {does} {config.model!r}{norm}{frozen}{as_shared}{advice}"


def _warn_about_written_classes(config: RunConfig) -> Iterator[str]:
    """Warn of a user's class whose methods override none of its base: usually a misspelt name."""
    chosen: list[tuple[Registry[Any], type, str]] = [
        *((CLIENT, FedAvgClient, name) for name in parts(config.client)),
        (OBJECTIVE, Objective, config.objective),
        (LOSS, Loss, config.loss),
        *((EXTENSION, Extension, name) for name in extension_names(config.extension)),
    ]
    for registry, base, name in chosen:
        below = [cls for cls in registry.find(name).__mro__ if issubclass(cls, base) and cls is not base]
        methods = _methods(base.__mro__)
        written = {word for word in _methods(below) if word in methods or not word.startswith("__")}
        if name not in registry.names and written and not written & methods:
            yield f"{registry.key}: {name!r} overrides no method of {base.__name__}: is a name misspelt?"


def _methods(classes: Iterable[type]) -> set[str]:
    return {word for cls in classes for word in vars(cls) if isinstance(vars(cls)[word], METHODS)}


def _warn_about_evaluation(inputs: RunInputs) -> Iterator[str]:
    if not inputs.config.clients_evaluate and not inputs.server_evaluates:
        lacks = f"what client {inputs.config.client!r} keeps at home" if inputs.local_names else "data"
        lacks = "one model of all clients" if STRATEGY.find(inputs.config.strategy).keeps_models else lacks
        asked = "fraction-evaluate: 0.0 asks no client"
        if not inputs.config.clients_report:
            without = "" if inputs.config.dp == "client" else " without dp-metrics"
            asked = f"dp: with {inputs.config.dp!r} clients send no metrics{without}"
        yield f"{asked}, and the server lacks {lacks}: nothing is evaluated"


def _warn_about_outputs(inputs: RunInputs) -> Iterator[str]:
    """Return a line for each model with more outputs than classes, or with a softmax before a loss that
    applies one itself; not for a softmax that the configuration asks for."""
    config, spec = inputs.config, inputs.model_spec
    if not isinstance(inputs.dataset.problem, Classification | NextCharacter):
        return
    for i, name in enumerate(models_named(config.model)):
        model, _ = inputs.model(i)
        output = _output(model, inputs.initial(i).spec.zeros(2, config.device))
        if (width := output.shape[-1]) > spec.outputs:
            yield (
                f"model: {name!r} has {width} outputs for {spec.outputs} {spec.predicts}: the last "
                f"{width - spec.outputs} are never right"
            )
        if config.softmax_output or config.loss not in LOSS.names:
            continue
        if sums_to_one(output):
            yield (
                f"model: {name!r} ends in a softmax, and the loss applies one itself: it learns slowly; let "
                "the model give the values before it"
            )
        elif sums_to_one(output.exp()):
            yield (
                f"model: {name!r} ends in a log-softmax, and the loss applies one itself: the second changes "
                "nothing, and the model needs none"
            )


def sums_to_one(values: torch.Tensor) -> bool:
    """Whether the values of each prediction are non-negative and sum to 1."""
    sums = values.sum(-1)
    return bool((values >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-3)


def _output(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    trains = model.training
    with torch.no_grad():
        output: torch.Tensor = model.eval()(inputs)
    model.train(trains)
    return output


MOST = 1.0
"""The learning rate times the root mean square of the targets beyond which training usually diverges.

Found with the models mlp-bn and 2nn, rates of 0.0001 to 0.05 and targets of 1 to 10,000: below 0.3 all runs
were finite, beyond 5 none. The gradient of the squared error grows as the targets do, and so do the weights
of the layer before the last.
"""
SAFE = 0.2


def _warn_about_target_scale(inputs: RunInputs) -> Iterator[str]:
    """Yield a warning if gradient descent on the squared error of large targets would probably diverge.

    A single layer does not diverge, nor do clipped optimisers or those that normalise the gradient.
    """
    config, dataset = inputs.config, inputs.dataset
    if not (dataset.has_examples and isinstance(dataset.problem, Regression)) or inputs.data_path:
        return
    if config.loss != "auto" or config.client_optimizer != "sgd" or config.clip_norm or config.dp != "none":
        return
    y = dataset.train.columns["y"].astype(np.float64)
    size = float(np.sqrt(np.mean(y**2)))
    layers = sum(parameter.ndim > 1 for parameter in inputs.initial().module.parameters())
    if config.client_lr * size <= MOST or layers < 2:
        return
    largest = int(np.abs(y).mean(0).argmax())
    widest = y[:, largest]
    where, called = _called(inputs, largest)
    yield (
        f"{where}: target? {called} is {widest.min():.6g} to {widest.max():.6g}, and squared errors of such "
        f"numbers mostly make training diverge at client-lr {config.client_lr:g}: subtract its mean, "
        f"{widest.mean():.3g}, and divide by its deviation, {widest.std():.3g}; or, slower, client-lr "
        f"{_rounded_down(SAFE / size):g}"
    )


def _called(inputs: RunInputs, column: int) -> tuple[str, str]:
    """Return the key that names the targets, and their name."""
    dataset = inputs.dataset
    names = dataset.class_names or dataset.kind.facts.get("targets", ())
    if names:
        return "label-column", repr(names[column])
    if inputs.config.dataset.startswith(ARRAYS):
        return "data", "y"
    return ("label-column", "the label") if isinstance(dataset.kind, Images) else ("dataset", "the target")


def _rounded_down(value: float) -> float:
    """Return a positive number rounded down to one significant digit."""
    unit = 10.0 ** floor(log10(value))
    return float(f"{floor(value / unit) * unit:.0e}")
