"""Check that a configuration fits its data, and what it shares its privacy."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients import (
    Classification,
    LocalTraining,
    MultiLabel,
    Problem,
    Segmentation,
    trainable_names,
)
from fedbn_flower.clients.modules.arrays import aliases
from fedbn_flower.clients.modules.batch_norm import batch_norm_statistics
from fedbn_flower.clients.modules.frozen import still_modules, train_mode
from fedbn_flower.clients.modules.head import features, head_entries
from fedbn_flower.clients.modules.lazy_torch import nn, torch
from fedbn_flower.clients.modules.rng import seeded
from fedbn_flower.clients.problems.evaluation import evaluate_splits
from fedbn_flower.clients.returned import WrongResult, kept_at_home

from ...config.keys import RUN_KEYS
from ...config.named_algorithms import NOT_GIVEN
from ...config.run_config import RunConfig
from ...core.errors import Conflict, UserError, not_allowed, refuse
from ...core.ground.columns import HALVES, TEST
from ...data import Dataset
from ...extensions.privacy import account_of_clients
from ...models.integers import error_to_show
from ...models.named import models_named
from ...names import CLIENT, LOSS, OBJECTIVE, PROBLEM, STRATEGY, as_user_error
from ...privacy.example_privacy import ExamplePrivacy
from ...privacy.local_privacy import LocalPrivacy
from ...privacy.run_privacy import RunPrivacy
from ..held_out import half_of, whole_split
from ..initial_model import InitialModel, does_not_fit
from ..inputs import RunInputs
from ..normalisation import layers_of_single_values
from ..tasks import check_example_wise, example_terms


def check_fit(inputs: RunInputs) -> None:
    """Refuse a configuration that does not fit the data, before anything starts.

    Raises
    ------
    UserError
        When the partition does not fit the data; when the model does not fit the inputs, its output does not
        fit the problem, it has no trainable parameter, or it cannot train on batches of this size; when a
        client would be evaluated on no examples, or on too few to halve; when a target is set for a metric
        that the problem lacks.
    """
    refuse(_conflicts(inputs))


def _conflicts(inputs: RunInputs) -> Iterator[Conflict]:
    """Yield the conflicts with the data, in order of report; raise for invalid values of these keys."""
    config, dataset = inputs.config, inputs.dataset
    if config.device == "cuda" and not torch.cuda.is_available():
        yield Conflict("device", "cuda", "'cpu': PyTorch finds no GPU here")
    yield from _of_classes(config, dataset)
    yield from _of_target(config, dataset)
    names = models_named(config.model)
    widths = {name: _check_model(inputs, i, name) for i, name in enumerate(names)}
    if len(names) > 1:
        yield from _of_several(inputs, widths)
    yield from of_recalibration(inputs)
    yield from _of_batch_size(inputs, names)
    if not dataset.has_examples:
        if config.reference == "pooled":
            yield Conflict("reference", "pooled", "'none' or 'alone': SuperNodes keep their data")
        if STRATEGY.find(config.strategy).in_simulations_only:
            wanted = f"another one with dataset {config.dataset!r}: it is for simulations, not for sites"
            yield Conflict("strategy", config.strategy, wanted)
        return
    if config.val_fraction and dataset.kind.trains_on_all:
        yield Conflict("val-fraction", config.val_fraction, f"0 with {config.dataset!r}")
    if (dataset.has_classes or dataset.has_masks) and dataset.spec.outputs < 2:
        name = f", {dataset.class_names[0]!r}" if dataset.class_names else ""
        raise UserError(f"dataset: {config.dataset!r} has one class only{name}: nothing can be learnt")
    dataset.kind.augmentation(config.augment)
    yield from _of_partitions(inputs)
    if config.cross_fits:
        half_of(inputs, inputs.partitions.test_rows, HALVES[0])


def decides(inputs: RunInputs) -> str:
    """Resolve ``decide-by``: which metric selects rounds, as `deciding` takes it.

    By default it is the server's, if the server evaluates the same model as the clients. If clients evaluate
    a model that they have trained, tuned or adapted, or halves of their examples, it is theirs.

    Raises
    ------
    UserError
        For a metric that the run will not have.
    """
    config, by = inputs.config, inputs.config.decide_by
    refuse(_of_deciding(inputs, by))
    if by != "auto":
        return by
    changes = config.fine_tune or config.adapt_bn or config.cross_fits
    of_one_model = config.eval_model == "aggregated" and not changes
    of_server = inputs.server_evaluates and of_one_model
    return "server" if of_server or not config.clients_evaluate else "pooled"


def _of_deciding(inputs: RunInputs, by: str) -> Iterator[Conflict]:
    """Yield a ``decide-by`` whose metric the run will not have."""
    config = inputs.config
    if by == "server" and not inputs.server_evaluates:
        where = "local BatchNorm" if inputs.local_names else "its data at the SuperNodes"
        where = f"strategy {config.strategy!r}" if STRATEGY.find(config.strategy).keeps_models else where
        yield Conflict("decide-by", by, f"another one with {where}: the server cannot evaluate")
    if by == "server" and config.cross_fits:
        yield Conflict("decide-by", by, f"another one with best {config.best!r}: halves of clients decide")
    if by not in ("auto", "server") and not config.clients_evaluate:
        yield Conflict("decide-by", by, "'server' with fraction-evaluate 0: no client evaluates")


def _of_target(config: RunConfig, dataset: Dataset) -> Iterator[Conflict]:
    problem, target = dataset.problem, config.target_value
    if target is None:
        return
    if target[0] in problem.metrics:
        low, high = problem.ranges.get(target[0], (-math.inf, math.inf))
        if not low <= target[1] <= high:
            yield Conflict("target", config.target, f"a value from {low:g} to {high:g}")
        return
    names = ", ".join(problem.metrics)
    yield Conflict("target", config.target, f"METRIC=VALUE with a metric of this run: {names}")


def _of_train_rows(inputs: RunInputs) -> Iterator[Conflict]:
    """Yield settings that leave a training client without training examples."""
    config = inputs.config
    empty = np.flatnonzero(inputs.partitions.train.sizes == 0).tolist()
    if lacking := [client for client in empty if client not in inputs.held_out_clients]:
        key, value = next(
            (key, value)
            for key, value in {
                "val-fraction": config.val_fraction,
                "folds": config.folds,
                "num-clients": config.num_clients,
            }.items()
            if value
        )
        who = f"{len(lacking)} of {config.num_clients} clients (the first is {lacking[0]})"
        yield Conflict(key, value, f"less: {who} would have no training examples")


def _of_partitions(inputs: RunInputs) -> Iterator[Conflict]:
    """Yield a partition that leaves a client without validation, test or training examples."""
    config, partitions = inputs.config, inputs.partitions
    if config.val_fraction and not len(partitions.val_rows):
        yield Conflict("val-fraction", config.val_fraction, "a share of at least one example")
    yield from _of_train_rows(inputs)
    if inputs.evaluates_locally and inputs.must_have_held_out:
        for split, clients in inputs.without_held_out.items():
            who = f"{len(clients)} clients (the first is {clients[0]})"
            yield Conflict("eval-data", "local", f"'global', since {who} would have no {split} examples")
    if len(clients_of_one_example(inputs)) == config.num_training:
        reason = f"each client has one example, and {config.model!r} cannot train on one: BatchNorm needs two"
        yield Conflict("num-clients", config.num_clients, f"fewer; {reason}")


def _check_model(inputs: RunInputs, partition_id: int, name: str) -> int:
    """Refuse a model that does not fit; return the width of its features where the objective uses them."""
    config, dataset, initial = inputs.config, inputs.dataset, inputs.initial(partition_id, "fp32")
    model, spec = initial.module, initial.spec
    batch = spec.zeros(2, config.device)
    try:
        with torch.no_grad(), layers_of_single_values(model) as single:
            output = model.eval()(batch)
    except Exception as error:
        raise does_not_fit(name, spec, error_to_show(model, spec, error)) from error
    if single and config.norm != RUN_KEYS["norm"].default:
        wanted = (
            f"another one with model {name!r}: the layer {single[0]!r} has one value a group, and nothing"
        )
        raise not_allowed("norm", config.norm, f"{wanted} is left of it less its mean")
    if spec.integers and dataset.has_examples:
        _check_integers(inputs, partition_id, name)
    refuse(_of_outputs(config, dataset, initial, name, batch, output))
    refuse(_of_algorithms(config, dataset.problem, initial, name, batch))
    model.eval()
    _check_optimizer(config, model, name)
    _check_problem(inputs, model)
    if config.precision != "fp32":
        _check_precision(inputs, partition_id, name)
    return _check_head(config, dataset.problem, model, name, batch)


def _of_outputs(
    config: RunConfig, dataset: Dataset, initial: InitialModel, name: str, batch: torch.Tensor, output: Any
) -> Iterator[Conflict]:
    """Yield outputs that the problem or its metrics do not go with, and a model without parameters."""
    model, spec = initial.module, initial.spec
    if wanted := dataset.problem.misfit(model, batch, output, spec.outputs):
        yield Conflict("model", name, wanted)
    if not dataset.has_masks and output.shape[-1] > spec.outputs:
        wanted = f"'none' with model {name!r}, which has more outputs than there are {spec.predicts}"
        if dataset.problem.chosen:
            yield Conflict("metrics", config.metrics, wanted)
        if config.recalibrate != "none":
            yield Conflict("recalibrate", config.recalibrate, wanted)
    if not trainable_names(model):
        yield Conflict("model", name, "one with a trainable parameter")


def _of_algorithms(
    config: RunConfig, problem: Problem, initial: InitialModel, name: str, batch: torch.Tensor
) -> Iterator[Conflict]:
    """Yield a client or an objective that does not go with the model; leave this as it trains."""
    model, client = initial.module, CLIENT.find(config.client)
    if not client.trains_head and _is_head_alone(model):
        yield Conflict(
            "client", config.client, f"another one: before the head of {name!r} nothing is trained"
        )
    if why := client.misfit(model, problem, batch):
        yield Conflict("client", config.client, f"another one with model {name!r}: {why}")
    train_mode(model, still_modules(model, initial.constant))
    if why := OBJECTIVE.find(config.objective).misfit(model):
        yield Conflict("objective", config.objective, f"another one with model {name!r}: {why}")


def _check_integers(inputs: RunInputs, partition_id: int, name: str) -> None:
    """Refuse integer inputs that a model does not take, such as tokens beyond its embedding."""
    inputs.prepare(np.empty(0, np.int64), partition_id)
    initial = inputs.initial(partition_id, "fp32")
    model, zeros = copy.deepcopy(initial.module).cpu().eval(), initial.spec.zeros(2)
    columns = [split.columns["x"] for split in (inputs.dataset.train, inputs.dataset.test)]
    for which, extreme in (("greatest", max(map(np.max, columns))), ("least", min(map(np.min, columns)))):
        try:
            with torch.no_grad():
                model(torch.full_like(zeros, int(extreme)))
        except Exception as error:
            why = " ".join(str(error).split())
            wanted = f"one that takes {int(extreme)}, the {which} of the inputs ({why})"
            raise not_allowed("model", name, wanted) from error


def _check_problem(inputs: RunInputs, model: nn.Module) -> None:
    """Try a user's problem on two examples: its loss in training, and all its evaluation."""
    config, problem = inputs.config, inputs.dataset.problem
    if type(problem) in PROBLEM.names.values() or not inputs.dataset.has_examples:
        return
    held_out = whole_split(inputs, TEST)
    some = replace(held_out, rows=held_out.rows[:2])
    with as_user_error(PROBLEM.key, config.problem):
        batch, targets = some.prepared(np.arange(len(some)))
        output = model.eval()(batch)
        loss: object = problem.loss(output, targets)
        if not isinstance(loss, torch.Tensor) or loss.ndim or not loss.requires_grad:
            raise WrongResult(problem, "loss", loss, "a scalar tensor with gradient")
        if isinstance(output, torch.Tensor) and len(some) > 1:  # evaluation adds over batches
            parts = [(output[rows], targets[rows]) for rows in (slice(2), slice(1), slice(1, 2))]
            both, *each = (problem.loss(*part, "sum").sum().item() for part in parts)
            if abs(2 * both - sum(each)) < 0.01 * sum(map(abs, each)) < abs(both):  # it is the mean
                wanted = f"with reduction 'sum' that of the two examples, {sum(each):.4g}"
                raise WrongResult(problem, "loss", round(both, 4), wanted)
        with contextlib.suppress(FloatingPointError):  # an untrained model may give any values
            found = evaluate_splits(model, {TEST: some}, TEST, problem, 0)
            if (headline := problem.compared_by) not in (*found, *problem.further):
                raise WrongResult(problem, "scores", found, f"its headline {headline!r} among them")


def _check_precision(inputs: RunInputs, partition_id: int, name: str) -> None:
    """Refuse a precision that some operation of the model lacks on this device."""
    config, (model, _) = inputs.config, inputs.model(partition_id)
    try:
        with seeded(0):
            output = copy.deepcopy(model).train()(inputs.initial(partition_id).spec.zeros(2, config.device))
            torch.autograd.backward(output.sum())
    except Exception as error:
        wanted = (
            f"'fp32': {name!r} cannot train in it on this {config.device}: {' '.join(str(error).split())}"
        )
        raise not_allowed("precision", config.precision, wanted) from error


def _check_optimizer(config: RunConfig, model: nn.Module, name: str) -> None:
    """Refuse an optimiser that does not take the model's parameters: Muon takes matrices only."""
    training = LocalTraining(optimizer=config.client_optimizer)
    if training.stackable:
        return
    try:
        training.make_optimizer([p for p in model.parameters() if p.requires_grad], config.client_lr)
    except ValueError as error:
        wanted = f"another one for model {name!r}, or {error}"
        raise not_allowed("client-optimizer", config.client_optimizer, wanted) from None


def _of_batch_size(inputs: RunInputs, names: Sequence[str]) -> Iterator[Conflict]:
    """Yield batches of one example if a model cannot train on one."""
    if inputs.config.batch_size != 1:
        return
    for i, name in enumerate(names):
        if not _trains_on_one(inputs, i):
            yield Conflict(
                "batch-size", 1, f"2 or more, or 0: {name!r} cannot train on one example, BatchNorm needs two"
            )


def clients_of_one_example(inputs: RunInputs) -> list[int]:
    """Return the partitions that fail in every round: one training example, and a model that needs two."""
    return [
        partition
        for partition in np.flatnonzero(inputs.partitions.train.sizes == 1).tolist()
        if partition not in inputs.held_out_clients and not _trains_on_one(inputs, partition)
    ]


def _trains_on_one(inputs: RunInputs, partition_id: int) -> bool:
    """Whether a client's model accepts a batch of one input in training mode."""
    initial = inputs.initial(partition_id)
    model = initial.module
    train_mode(model, still_modules(model, initial.constant))
    try:
        with torch.no_grad(), seeded(0):
            model(initial.spec.zeros(1, inputs.config.device))
    except Exception:
        return False
    return True


def _of_several(inputs: RunInputs, widths: Mapping[str, int]) -> Iterator[Conflict]:
    """Yield several models if entries would be shared, or if their features differ in width."""
    config = inputs.config
    for i in range(len(widths)):
        model, initial = inputs.model(i)
        if initial.keys() - kept_at_home(CLIENT.find(config.client), model):
            wanted = f"one model with client {config.client!r}, or client 'alone', which shares nothing of it"
            yield Conflict("model", config.model, wanted)
    if len(set(widths.values())) > 1:
        found = ", ".join(f"{name} {width}" for name, width in widths.items())
        yield Conflict("model", config.model, f"models with features of one width, not {found}")


def _of_classes(config: RunConfig, dataset: Dataset) -> Iterator[Conflict]:
    for registry, name in ((OBJECTIVE, config.objective), (LOSS, config.loss)):
        if registry.find(name).of_classes and not isinstance(dataset.problem, Classification):
            has = f"{config.dataset!r} has {dataset.spec.predicts}"
            if config.problem != NOT_GIVEN:
                has = f"problem {config.problem!r} has other outputs"
            yield Conflict(registry.key, name, f"another one: it needs classes, and {has}")
    if STRATEGY.find(config.strategy).of_classes and not dataset.has_classes:
        has = f"{config.dataset!r} has {dataset.spec.predicts}"
        yield Conflict(STRATEGY.key, config.strategy, f"another one: it needs classes, and {has}")
    if LOSS.find(config.loss).of_masks and not isinstance(dataset.problem, Segmentation):
        yield Conflict(LOSS.key, config.loss, "another one: it needs masks and problem 'segmentation'")
    if dataset.has_masks and config.softmax_output:
        yield Conflict("softmax-output", True, "false: of masks the loss applies the softmax")


def _is_head_alone(model: nn.Module) -> bool:
    """Whether no parameter before the head is trained."""
    return not set(trainable_names(model)) - head_entries(model)


def _check_head(config: RunConfig, problem: Problem, model: nn.Module, name: str, batch: torch.Tensor) -> int:
    if not OBJECTIVE.find(config.objective).of_features:
        return 0
    if isinstance(problem, Segmentation):
        wanted = "another one: it compares an example's features, and a mask has them for each pixel"
        raise not_allowed("objective", config.objective, wanted)
    try:
        found, _ = features(model, batch)
    except ValueError as error:
        raise UserError(f"objective: {config.objective!r} needs the model's features, but {error}") from None
    if _is_head_alone(model):
        wanted = f"another one: before the head of {name!r} nothing is trained"
        raise not_allowed("objective", config.objective, wanted)
    return found.shape[1]


FEW, FEW_EVENTS = 50, 10
"""Fewer validation examples at a site, or fewer outside the most frequent class, give a warning."""


def of_few_cases(inputs: RunInputs) -> Iterator[str]:
    """Yield a warning of sites that recalibrate on few validation examples, or on few events."""
    if inputs.config.recalibrate == "none" or not inputs.dataset.has_examples:
        return
    held_out = inputs.held_out_clients
    val, y = inputs.partitions.val, inputs.dataset.train.columns["y"]
    sizes = {i: int(n) for i, n in enumerate(val.sizes) if i not in held_out}
    rarer = {i: _outside_most_frequent(y[val[i]]) for i in sizes}
    few = [client for client, size in sizes.items() if size < FEW or rarer[client] < FEW_EVENTS]
    if few:
        name = inputs.client_names[few[0]] if inputs.client_names else few[0]
        yield (
            f"recalibrate: {len(few)} of {len(sizes)} clients have fewer than {FEW} validation examples, or "
            f"than {FEW_EVENTS} outside the most frequent class (client {name} has {sizes[few[0]]} and "
            f"{rarer[few[0]]}), so what they fit is uncertain"
        )


def _outside_most_frequent(targets: NDArray) -> int:
    """Return how many targets are not of the most frequent class; of several labels, the fewest."""
    of_labels = targets.T if targets.ndim > 1 else [targets]
    return min(len(y) - int(np.unique(y, return_counts=True)[1].max(initial=0)) for y in of_labels)


def of_recalibration(inputs: RunInputs) -> Iterator[Conflict]:
    """Yield why scores cannot be recalibrated: there are no scores of classes or labels, the method is for
    two classes only, or clients are not evaluated on examples of their own."""
    config, dataset = inputs.config, inputs.dataset
    method = config.recalibrate
    if method == "none":
        return
    predicted = type(dataset.problem).predicted
    if predicted not in (Classification.predicted, MultiLabel.predicted):
        what = dataset.spec.predicts if config.problem == "auto" else f"problem {config.problem!r}"
        wanted = f"'none' with {what}: there are no scores of classes or labels"
        yield Conflict("recalibrate", method, wanted)
    classes = dataset.spec.outputs if predicted is Classification.predicted else 2
    if classes > 2 and method != "temperature":
        yield Conflict("recalibrate", method, f"'none' or 'temperature' with {classes} classes, not two")
    if dataset.has_examples and not inputs.evaluates_locally:
        wanted = "'none' without eval-data 'local': no site has a validation share of its own"
        yield Conflict("recalibrate", method, wanted)


def privacy_of(inputs: RunInputs) -> RunPrivacy | None:
    """Return the privacy of a run, or None for a run without.

    Raises
    ------
    UserError
        When DP-SGD would not protect single examples; when BatchNorm statistics are shared, or no trained
        entry is; and as `ClientPrivacy` does.
    """
    config, (model, entries) = inputs.config, inputs.model()
    if config.dp == "none":
        return None
    if config.dp == "example":
        check_example_wise(inputs)
        return ExamplePrivacy(config, example_terms(inputs) if inputs.dataset.has_examples else None)
    shared = set(inputs.split.shared) & set(trainable_names(model))
    tensors = {min(aliases(model).get(name, (name,))) for name in shared}
    refuse(_of_shared(inputs, model, tensors))
    parameters = int(sum(np.size(entries[name]) for name in tensors))
    if config.dp == "local":
        return LocalPrivacy(config, parameters)
    return account_of_clients(config, parameters)


def _of_shared(inputs: RunInputs, model: nn.Module, tensors: Collection[str]) -> Iterator[Conflict]:
    """Yield a client that shares BatchNorm statistics, or nothing that is trained."""
    config = inputs.config
    if statistics := set(inputs.split.shared) & batch_norm_statistics(model):
        wanted = f"'silobn' or 'fedbn', or a model with GroupNorm, with dp {config.dp!r}: it would share the "
        wanted += f"BatchNorm statistics of {config.model!r}, such as {min(statistics)}"
        yield Conflict("client", config.client, wanted)
    if not tensors:
        wanted = f"another one with dp {config.dp!r}: nothing that is trained is shared"
        yield Conflict("client", config.client, wanted)
