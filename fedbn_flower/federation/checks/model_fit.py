"""Whether a configuration fits its data."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from fedbn_flower.clients import trainable_names
from fedbn_flower.clients.modules.head import features, head_entries
from fedbn_flower.clients.modules.rng import seeded

from ...config.registry import CLIENT, LOSS, OBJECTIVE, models_named
from ...config.run_config import RunConfig
from ...core.errors import UserError, not_allowed
from ...data import Dataset
from ..initial_model import does_not_fit
from ..inputs import RunInputs


def check_fit(inputs: RunInputs) -> None:
    """Refuse a configuration that does not fit the data, before anything starts.

    Raises
    ------
    UserError
        When the partition does not fit, the model does not fit the inputs, its output is not what the problem
        needs, nothing of it is trained or it cannot train on as few examples as each batch has, a client
        would be evaluated on no examples, or a target is of another figure than the problem's.
    """
    config, dataset = inputs.config, inputs.dataset
    if config.device == "cuda" and not torch.cuda.is_available():
        raise not_allowed("device", "cuda", "'cpu': PyTorch finds no GPU here")
    _check_classes(config, dataset)
    if config.target_accuracy and (by := dataset.problem.compared_by) != "accuracy":
        raise not_allowed(
            "target-accuracy", config.target_accuracy, f"0: {config.dataset!r} is compared by {by}"
        )
    names = models_named(config.model)
    widths = {name: _check_model(inputs, i, name) for i, name in enumerate(names)}
    if len(names) > 1:
        _check_several(inputs, widths)
    _check_batch_size(inputs, names)
    if not dataset.has_examples:
        if config.reference == "pooled":
            raise not_allowed("reference", "pooled", "'none' or 'alone': SuperNodes keep their data")
        return
    if config.val_fraction and dataset.kind.trains_on_all:
        raise not_allowed("val-fraction", config.val_fraction, f"0 with {config.dataset!r}")
    if dataset.has_classes and dataset.spec.outputs < 2:
        told = f"one class only, {dataset.class_names[0]!r}" if dataset.class_names else "one class only"
        raise UserError(f"dataset: {config.dataset!r} has {told}: there is nothing to tell apart")
    _check_partitions(inputs)


def _check_partitions(inputs: RunInputs) -> None:
    """Refuse a partition that leaves no example to validate, to test or to train on."""
    config, partitions = inputs.config, inputs.partitions
    if config.val_fraction and not len(partitions.val_rows):
        raise not_allowed("val-fraction", config.val_fraction, "a share of at least one example")
    if inputs.evaluates_locally:
        for split, clients in inputs.without_held_out.items():
            told = f"{len(clients)} clients (the first is {clients[0]})"
            raise not_allowed("eval-data", "local", f"'global', since {told} would have no {split} examples")
    if len(clients_of_one_example(inputs)) == config.num_training:
        raise UserError(
            f"num-clients: {config.num_clients} is not allowed; each client has one example, "
            f"and {config.model!r} cannot train on one: BatchNorm needs two"
        )


def _check_model(inputs: RunInputs, partition_id: int, name: str) -> int:
    """Refuse a model that does not fit; how wide its head's input is, where the objective is about that."""
    config, dataset = inputs.config, inputs.dataset
    model, _ = inputs.model(partition_id)
    batch = dataset.spec.zeros(2, config.device)
    try:
        with torch.no_grad():
            output = model.eval()(batch)
    except Exception as error:
        raise does_not_fit(name, dataset.spec, error) from error
    if wanted := dataset.problem.misfit(model, batch, output, dataset.spec.outputs):
        raise not_allowed("model", name, wanted)
    if not trainable_names(model):
        raise not_allowed("model", name, "one with a parameter that is trained")
    return _check_head(config, model, name, batch)


def _check_batch_size(inputs: RunInputs, names: Sequence[str]) -> None:
    """Refuse batches of one example where a model cannot train on one."""
    if inputs.config.batch_size != 1:
        return
    for i, name in enumerate(names):
        if not _trains_on_one(inputs, i):
            raise not_allowed(
                "batch-size", 1, f"2 or more, or 0: {name!r} cannot train on one example, BatchNorm needs two"
            )


def clients_of_one_example(inputs: RunInputs) -> list[int]:
    """The partitions that have one training example only, where their model cannot train on one: they fail
    in every round."""
    return [
        partition
        for partition, rows in enumerate(inputs.partitions.train)
        if len(rows) == 1 and partition not in inputs.held_out and not _trains_on_one(inputs, partition)
    ]


def _trains_on_one(inputs: RunInputs, partition_id: int) -> bool:
    """Whether a client's model, which takes two inputs, takes one in training mode."""
    model, _ = inputs.model(partition_id)
    model.train()
    try:
        with torch.no_grad(), seeded(0):
            model(inputs.dataset.spec.zeros(1, inputs.config.device))
    except Exception:
        return False
    return True


def _check_several(inputs: RunInputs, widths: Mapping[str, int]) -> None:
    """Refuse several models where anything of them is shared, or where their features differ in length."""
    config = inputs.config
    for i in range(len(widths)):
        model, initial = inputs.model(i)
        if initial.keys() - CLIENT.find(config.client).local_entries(model):
            told = f"one model with client {config.client!r}, or client 'alone', which shares nothing of it"
            raise not_allowed("model", config.model, told)
    if len(set(widths.values())) > 1:
        told = ", ".join(f"{name} {width}" for name, width in widths.items())
        raise not_allowed("model", config.model, f"models with as wide an input of the head, not {told}")


def _check_classes(config: RunConfig, dataset: Dataset) -> None:
    for registry, name in ((OBJECTIVE, config.objective), (LOSS, config.loss)):
        if registry.find(name).of_classes and not dataset.has_classes:
            told = f"another one: it is about classes, and {config.dataset!r} has {dataset.spec.predicts}"
            raise not_allowed(registry.key, name, told)


def _check_head(config: RunConfig, model: nn.Module, name: str, batch: Tensor) -> int:
    if not OBJECTIVE.find(config.objective).of_features:
        return 0
    try:
        found, _ = features(model, batch)
    except ValueError as error:
        told = f"{config.objective!r} needs what goes into the model's head, but {error}"
        raise UserError(f"objective: {told}") from None
    if not set(trainable_names(model)) - head_entries(model):
        told = f"another one: before the head of {name!r} there is nothing that is trained"
        raise not_allowed("objective", config.objective, told)
    return found.shape[1]
