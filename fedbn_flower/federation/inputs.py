"""From a configuration to what a process works on: the dataset, the model, a client's task.

Datasets, models and partitions are cached for the life of the process: a worker serves many clients.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import torch
from flwr.app import UserConfigValue
from numpy.typing import NDArray
from torch import nn

from fedbn_flower.clients import Examples, LocalTask, LocalTraining, Prepare

from ..config.availability import held_out_clients, share_of_work
from ..config.keys import OWN_KEYS
from ..config.registry import CLIENT, LOSS, OBJECTIVE, models_named
from ..config.run_config import RunConfig
from ..core.errors import UserError, not_allowed
from ..data import MADE, Dataset, Partitions, Request, cache_folder, load_dataset, partition_dataset
from ..data.images.shift_spec import domain_of, seen_by
from ..data.kinds import KINDS
from ..models import InputSpec
from ..models.channels_last import lay_out
from ..records.columns import TEST, VALIDATION
from .initial_model import build_model


@lru_cache(maxsize=4)
def dataset_of(config: RunConfig, data_path: str = "", cache_dir: str = "") -> Dataset:
    """The run's dataset, or the node's own folder if it names one.

    A ``dataset`` of ``shape:...`` has no examples: it says what every node's own look like.

    Raises
    ------
    UserError
        When it cannot be had, or a node's own data differ from what the run expects.
    """
    shape = InputSpec.parse(config.dataset)
    if shape and not data_path:
        return Dataset.without_examples(shape)
    name = data_path or config.dataset
    group = "" if data_path else config.partitioning.column
    made = name.startswith(tuple(MADE))
    request = Request(
        name,
        config.image_column,
        config.label_column,
        config.image_size,
        group,
        clients=config.num_clients if made else 0,
        seed=config.seed if made else 0,
        feature_shift=config.feature_shift,
        predict=shape.predicts if shape and config.predict == "auto" else config.predict,
        columns=config.columns,
        of_site=bool(data_path),
    )
    dataset = load_dataset(request, cache_folder(cache_dir or config.cache_dir))
    _check_keys(config, dataset)
    if not shape:
        return _of_rows_that_train(config, dataset) if config.holdout_clients and not data_path else dataset
    own = dataset.spec
    if (own.shape, own.predicts) != (shape.shape, shape.predicts) or own.outputs > shape.outputs:
        raise not_allowed("data-path", data_path, f"examples of {shape}, not of {own}")
    if own.outputs < shape.outputs and dataset.kind.facts.get("numbered-here"):
        here = f"class numbers, or all {shape.outputs} class names: the {own.outputs} here are numbered anew"
        raise not_allowed("data-path", data_path, here)
    return replace(dataset, spec=shape)


def _check_keys(config: RunConfig, dataset: Dataset) -> None:
    """Refuse keys that are for another kind of data."""
    for name, kind in KINDS.items():
        for key in sorted(kind.keys - dataset.kind.keys):
            value, default = getattr(config, key.replace("-", "_")), OWN_KEYS[key].default
            if value != default:
                raise not_allowed(key, value, f"{default!r}, since the data are not of the kind {name!r}")


def _of_rows_that_train(config: RunConfig, dataset: Dataset) -> Dataset:
    """The dataset with a problem that knows nothing of the held-out clients' rows."""
    shares = partition_dataset(
        dataset, config.partition, config.num_clients, config.seed, config.val_fraction
    )
    return replace(dataset, problem=dataset.kind.problem(_rows_that_train(config, shares)))


def _rows_that_train(config: RunConfig, partitions: Partitions) -> NDArray[np.int64]:
    """The rows of all clients but those held out, in order."""
    held_out = held_out_clients(config.seed, config.num_clients, config.holdout_clients)
    rows = [own for client, own in enumerate(partitions.train) if client not in held_out]
    return np.unique(np.concatenate(rows))


@lru_cache(maxsize=4)
def partitions_of(config: RunConfig) -> Partitions:
    """The rows of every client; where all training data are in one place, every client that is not held out
    has all of them."""
    shares = partition_dataset(
        dataset_of(config), config.partition, config.num_clients, config.seed, config.val_fraction
    )
    if config.reference != "pooled":
        return shares
    held_out = held_out_clients(config.seed, config.num_clients, config.holdout_clients)
    pooled = _rows_that_train(config, shares)
    return replace(shares, train=[rows if i in held_out else pooled for i, rows in enumerate(shares.train)])


@lru_cache(maxsize=16)
def evaluates_locally(config: RunConfig) -> bool:
    """Whether a client is evaluated on its share of the held-out examples.

    ``auto``: where clients prepare data each in its own way, the examples of others would come to it in a
    form that its model was not trained on.
    """
    if config.eval_data != "auto":
        return config.eval_data == "local"
    dataset = dataset_of(config)
    return dataset.has_examples and dataset.kind.prepares_by_client and not without_held_out(config)


def without_held_out(config: RunConfig) -> dict[str, list[int]]:
    """The clients that have no examples in a held-out split, by split; those splits only."""
    partitions = partitions_of(config)
    shares = {VALIDATION: partitions.val, TEST: partitions.test}
    splits = held_out_splits(config, final=True).split(",")
    found = {split: [i for i, rows in enumerate(shares[split]) if not len(rows)] for split in splits}
    return {split: clients for split, clients in found.items() if clients}


def client_names(config: RunConfig) -> tuple[str, ...]:
    """Whose data each client has, where the data say so."""
    return partitions_of(config).names if dataset_of(config).has_examples else ()


@lru_cache(maxsize=8)
def initial_model(
    name: str, spec: InputSpec, softmax_output: bool, seed: int, device: str = "cpu"
) -> tuple[nn.Module, dict[str, NDArray]]:
    """A module of this process and the run's initial state dict, the same in every process."""
    model = build_model(name, spec, softmax_output, seed)
    initial = {name: entry.numpy().copy() for name, entry in model.state_dict().items()}
    if device == "cpu":
        lay_out(model, spec)
    return model.to(device), initial


def model_of(
    config: RunConfig, spec: InputSpec, partition_id: int = 0
) -> tuple[nn.Module, dict[str, NDArray]]:
    """`initial_model` of a configuration; where it names several, that of this client."""
    names = models_named(config.model)
    name = names[partition_id % len(names)]
    return initial_model(name, spec, config.softmax_output, config.seed, config.device)


def remembers(config: RunConfig, model: nn.Module) -> bool:
    """Whether clients of this model remember anything between rounds."""
    objective, client = OBJECTIVE.find(config.objective), CLIENT.find(config.client)
    return objective.remembers or client.remembers or bool(client.local_entries(model))


def forget() -> None:
    """Drop what this process has cached of earlier runs: their files may have changed since."""
    for cached in (
        load_dataset,
        partition_dataset,
        dataset_of,
        partitions_of,
        evaluates_locally,
        whole_split,
        _whole_split,
        local_task_of,
    ):
        cached.cache_clear()


def held_out_splits(config: RunConfig, final: bool) -> str:
    """The splits a round evaluates on: the test set, unless a validation share stands in for it."""
    if not config.val_fraction:
        return TEST
    return f"{VALIDATION},{TEST}" if final and config.final_test else VALIDATION


@lru_cache(maxsize=4)
def whole_split(config: RunConfig, split: str) -> Examples:
    """All held-out examples of a split, as the server sees them: prepared by the rows that train."""
    dataset = dataset_of(config)
    prepare = dataset.kind.prepare(_rows_that_train(config, partitions_of(config)), config.normalize)
    return _whole_split(config, dataset, split, prepare, None)


@lru_cache(maxsize=16)
def _whole_split(
    config: RunConfig, dataset: Dataset, split: str, prepare: Prepare, domain: int | None
) -> Examples:
    """One object for all who see and prepare the examples alike: by it they are known to be the same."""
    held_out, rows = dataset.test, np.arange(len(dataset.test))
    if split == VALIDATION:
        held_out, rows = dataset.train, partitions_of(config).val_rows
    columns = seen_by(held_out.columns, config.feature_shift, domain)
    return Examples(columns, rows, prepare, device=config.device)


def local_task(
    config: RunConfig, partition_id: int | None, node_config: Mapping[str, UserConfigValue]
) -> LocalTask:
    """What the client of this partition works on.

    A node with a ``data-path`` trains on that folder's training set and is tested on its test set; what is
    decoded of it goes to the node's ``cache-dir``, whatever the run's says, and of which classes its examples
    are is not told.

    Raises
    ------
    UserError
        When there is no such partition, or the data cannot be had.
    """
    torch.set_num_threads(1)  # the same bits on every runtime
    if "data-path" not in node_config:
        return local_task_of(config, partition_id or 0)
    own = str(node_config["data-path"]), str(node_config.get("cache-dir", "auto"))
    return local_task_of(config, partition_id or 0, *own)


@lru_cache(maxsize=4096)
def local_task_of(
    config: RunConfig, partition_id: int, data_path: str = "", cache_dir: str = ""
) -> LocalTask:
    """`local_task` by the node's own keys; kept."""
    dataset = dataset_of(config, data_path, cache_dir)
    if not dataset.has_examples:
        raise UserError(f"data-path: missing from the node config; the run's dataset is {config.dataset!r}")
    rows = _rows_of(config, dataset, partition_id, data_path)
    prepare = dataset.kind.prepare(rows["train"], config.normalize)
    train, test = (
        seen_by(split.columns, config.feature_shift, partition_id) for split in (dataset.train, dataset.test)
    )
    columns = {"train": train, VALIDATION: train, TEST: test}
    augment = dataset.kind.augmentation(config.augment)
    examples = {
        split: Examples(
            columns[split], own, prepare, augment if split == "train" else None, device=config.device
        )
        for split, own in rows.items()
    }
    for split in (VALIDATION, TEST):
        if split not in examples:
            domain = domain_of(config.feature_shift, partition_id)
            examples[split] = _whole_split(config, dataset, split, prepare, domain)
    model, initial = model_of(config, dataset.spec, partition_id)
    loss = LOSS.find(config.loss)
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
        examples.pop("train"),
        examples,
        training,
        (config.seed, partition_id),
        OBJECTIVE.find(config.objective),
        dataset.problem,
        loss,
        config.settings_for(loss),
        config.settings_for(CLIENT.find(config.client)),
        partial(share_of_work, config.seed, 0 if config.drop_stragglers else config.stragglers, partition_id),
        tells_classes=not data_path,
    )


def _rows_of(
    config: RunConfig, dataset: Dataset, partition_id: int, data_path: str
) -> dict[str, NDArray[np.int64]]:
    """A client's own rows: ``train``, and those of the splits of which it is evaluated on a part."""
    if data_path:
        order = np.random.default_rng([config.seed, partition_id]).permutation(len(dataset.train))
        cut = int(config.val_fraction * len(order))
        whole_test = np.arange(len(dataset.test))
        return {"train": np.sort(order[cut:]), VALIDATION: np.sort(order[:cut]), TEST: whole_test}
    if partition_id >= config.num_clients:
        raise UserError(f"partition-id: {partition_id} is not allowed; num-clients is {config.num_clients}")
    shares = partitions_of(config)
    train = shares.train[partition_id]
    if evaluates_locally(config):
        return {"train": train, VALIDATION: shares.val[partition_id], TEST: shares.test[partition_id]}
    return {"train": train}
