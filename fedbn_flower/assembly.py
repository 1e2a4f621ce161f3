"""From a configuration to what a process works on: the dataset, the model, a client's task.

Datasets, models and partitions are cached for the life of the process: a worker serves many clients.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from flwr.app import UserConfigValue
from numpy.typing import NDArray
from torch import nn

from clients import Examples, LocalTask, LocalTraining, trainable_names
from clients.lockstep import why_alone, why_unknown

from .config import RunConfig
from .data import DecodedDataset, Partitions, load_dataset, partition_dataset
from .data.decoded import cache_folder
from .data.sources import ImageRequest
from .errors import UserError, not_allowed
from .models import InputSpec
from .models.build import build_model, does_not_fit
from .registry import CLIENT, OBJECTIVE

LOGGER = logging.getLogger("flwr.fedbn")
VALIDATION, TEST = "val", "test"
COHORT = 8


@lru_cache(maxsize=4)
def dataset_of(config: RunConfig, data_path: str = "", cache_dir: str = "") -> DecodedDataset:
    """The run's dataset, or the node's own folder if it names one.

    A ``dataset`` of ``shape:...`` has no examples: it says what every node's own images look like.

    Raises
    ------
    UserError
        When it cannot be had, or a node's own images differ from what the run expects.
    """
    shape = InputSpec.parse(config.dataset)
    if shape and not data_path:
        return DecodedDataset.without_examples(shape)
    spec = config.partitioning
    group = str(spec.argument) if spec.kind == "natural" and not data_path else ""
    request = ImageRequest(
        data_path or config.dataset,
        config.image_column,
        config.label_column,
        config.image_size,
        group,
    )
    dataset = load_dataset(request, cache_folder(cache_dir or config.cache_dir))
    if not shape:
        return dataset
    if dataset.spec.shape != shape.shape or dataset.spec.classes > shape.classes:
        raise not_allowed("data-path", data_path, f"images of {shape}, not of {dataset.spec}")
    return replace(dataset, spec=shape)


@lru_cache(maxsize=4)
def partitions_of(config: RunConfig) -> Partitions:
    """The rows of every client."""
    return partition_dataset(
        dataset_of(config), config.partition, config.num_clients, config.seed, config.val_fraction
    )


@lru_cache(maxsize=2)
def initial_model(
    name: str, spec: InputSpec, softmax_output: bool, seed: int, device: str = "cpu"
) -> tuple[nn.Module, dict[str, NDArray]]:
    """A module of this process and the run's initial state dict, the same in every process."""
    model = build_model(name, spec, softmax_output, seed)
    initial = {name: entry.numpy().copy() for name, entry in model.state_dict().items()}
    return model.to(device), initial


def model_of(config: RunConfig, spec: InputSpec) -> tuple[nn.Module, dict[str, NDArray]]:
    """`initial_model` of a configuration."""
    return initial_model(config.model, spec, config.softmax_output, config.seed, config.device)


def remembers(config: RunConfig, model: nn.Module) -> bool:
    """Whether clients of this model remember anything between rounds."""
    objective, client = OBJECTIVE.find(config.objective), CLIENT.find(config.client)
    return objective.remembers or bool(client.local_entries(model))


def cohort_size(config: RunConfig) -> int:
    """How many clients train in lockstep; 1 for one by one. It is logged, with the reason.

    It does not depend on the number of workers, nor does it leave some of them without work when a round
    has few clients.
    """
    reason = why_one_by_one(config)
    told = (f"{COHORT} at a time", "in lockstep") if not reason else ("one by one", reason)
    LOGGER.info("clients train %s: %s", *told)
    return 1 if reason else COHORT


@lru_cache(maxsize=16)
def why_one_by_one(config: RunConfig) -> str:
    """What keeps clients from training in lockstep, in words; empty if nothing does. It takes a trial."""
    if config.fast == "off":
        return "fast is off"
    if int(config.fraction_train * config.num_clients) < 2 * COHORT:
        return f"fewer than {2 * COHORT} a round"
    task, client = _local_task(config, 0), CLIENT.find(config.client)
    unknown = why_unknown(task.model, task.objective, client, config.device)
    return unknown or why_alone(client, task, config.messages_for(task.objective))


def held_out_splits(config: RunConfig, final: bool) -> str:
    """The splits a round evaluates on: the test set, unless a validation share stands in for it."""
    if not config.val_fraction:
        return TEST
    return f"{VALIDATION},{TEST}" if final else VALIDATION


def check_fit(config: RunConfig) -> None:
    """Refuse a configuration that does not fit the data, before anything starts.

    Raises
    ------
    UserError
        When the partition does not fit, images are too small for the model, its output is not a number for
        each class, nothing of it is trained, or a client would be evaluated on no examples.
    """
    if config.device == "cuda" and not torch.cuda.is_available():
        raise not_allowed("device", "cuda", "'cpu': PyTorch finds no GPU here")
    dataset = dataset_of(config)
    model, _ = model_of(config, dataset.spec)
    try:
        with torch.no_grad():
            output = model.eval()(torch.zeros((2, *dataset.spec.shape), device=config.device))
    except Exception as error:
        raise does_not_fit(config.model, dataset.spec, error) from error
    shape = tuple(output.shape) if isinstance(output, torch.Tensor) else ()
    if len(shape) != 2 or shape[0] != 2 or shape[1] < dataset.spec.classes:
        found = shape if shape else f"a {type(output).__name__}"
        wanted = f"one whose output for two images has the shape (2, {dataset.spec.classes}), not {found}"
        raise not_allowed("model", config.model, wanted)
    if not trainable_names(model):
        raise not_allowed("model", config.model, "one with a parameter that is trained")
    if not dataset.has_examples:
        return
    partitions = partitions_of(config)
    if config.val_fraction and not len(partitions.val_rows):
        raise not_allowed("val-fraction", config.val_fraction, "a share of at least one example")
    if config.eval_data == "local":
        for split in held_out_splits(config, final=True).split(","):
            rows = partitions.val if split == VALIDATION else partitions.test
            if empty := [i for i, share in enumerate(rows) if not len(share)]:
                told = f"{len(empty)} clients (the first is {empty[0]})"
                raise not_allowed(
                    "eval-data", "local", f"'global', since {told} would have no {split} examples"
                )


def whole_split(config: RunConfig, dataset: DecodedDataset, split: str) -> Examples:
    """All held-out examples of a split."""
    if split == VALIDATION:
        return _examples(config, dataset, "train", partitions_of(config).val_rows)
    return _examples(config, dataset, "test", np.arange(len(dataset.test.labels)))


def local_task(
    config: RunConfig, partition_id: int | None, node_config: Mapping[str, UserConfigValue]
) -> LocalTask:
    """What the client of this partition works on.

    A node with a ``data-path`` trains on that folder's training set and is tested on its test set; what is
    decoded of it goes to the node's ``cache-dir``, whatever the run's says.

    Raises
    ------
    UserError
        When there is no such partition, or the data cannot be had.
    """
    torch.set_num_threads(1)  # the same bits on every runtime
    if "data-path" not in node_config:
        return _local_task(config, partition_id or 0)
    own = str(node_config["data-path"]), str(node_config.get("cache-dir", "auto"))
    return _local_task(config, partition_id or 0, *own)


@lru_cache(maxsize=4096)
def _local_task(config: RunConfig, partition_id: int, data_path: str = "", cache_dir: str = "") -> LocalTask:
    dataset = dataset_of(config, data_path, cache_dir)
    if not dataset.has_examples:
        raise UserError(f"data-path: missing from the node config; the run's dataset is {config.dataset!r}")
    if data_path:
        every = np.arange(len(dataset.train.labels))
        order = np.random.default_rng([config.seed, partition_id]).permutation(every)
        cut = int(config.val_fraction * len(order))
        rows = {"train": np.sort(order[cut:]), VALIDATION: np.sort(order[:cut])}
        train = _examples(config, dataset, "train", rows["train"])
        evaluation = {
            VALIDATION: _examples(config, dataset, "train", rows[VALIDATION]),
            TEST: _examples(config, dataset, "test", np.arange(len(dataset.test.labels))),
        }
    else:
        if partition_id >= config.num_clients:
            raise UserError(
                f"partition-id: {partition_id} is not allowed; num-clients is {config.num_clients}"
            )
        partitions = partitions_of(config)
        train = _examples(config, dataset, "train", partitions.train[partition_id])
        if config.eval_data == "local":
            evaluation = {
                VALIDATION: _examples(config, dataset, "train", partitions.val[partition_id]),
                TEST: _examples(config, dataset, "test", partitions.test[partition_id]),
            }
        else:
            evaluation = {s: whole_split(config, dataset, s) for s in (VALIDATION, TEST)}
    model, initial = model_of(config, dataset.spec)
    training = LocalTraining(
        epochs=config.local_epochs,
        batch_size=config.batch_size,
        optimizer=config.client_optimizer,
        momentum=config.client_momentum,
        weight_decay=config.weight_decay,
        clip_norm=config.clip_norm,
    )
    return LocalTask(
        model,
        initial,
        train,
        evaluation,
        training,
        (config.seed, partition_id),
        OBJECTIVE.find(config.objective),
        config.settings_for(CLIENT.find(config.client)),
    )


def _examples(config: RunConfig, dataset: DecodedDataset, split: str, rows: NDArray[np.int64]) -> Examples:
    decoded = dataset.train if split == "train" else dataset.test
    if config.normalize:
        return Examples(decoded.images, decoded.labels, rows, dataset.mean, dataset.std, config.device)
    return Examples(decoded.images, decoded.labels, rows, device=config.device)
