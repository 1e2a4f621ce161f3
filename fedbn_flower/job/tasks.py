"""The task of one client: its examples, its model, how it trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients import Columns, Examples, LocalTask, LocalTraining, Prepare
from fedbn_flower.clients.modules.dp_sgd import obstacle

from ..core.errors import Conflict, UserError, not_allowed
from ..core.ground.columns import HALVES, TEST, TRAIN, VALIDATION
from ..core.process_cache import process_cache
from ..data.images.patches import RandomPatches
from ..data.images.shift_spec import domain_of, seen_by
from ..data.partition.shares import Shares
from ..data.splits import numbered
from ..data.splits.folds import folds_of_clients
from ..models.named import models_named
from ..names import CLIENT, LOSS, OBJECTIVE
from ..privacy.example_privacy import ExampleTerms, terms_of
from ..privacy.floors import Refused
from .held_out import half_of, prepared_split
from .inputs import RunInputs
from .participation import share_of_work


def check_example_wise(inputs: RunInputs) -> None:
    """Refuse models, objectives and losses that use more than one example at a time.

    Raises
    ------
    Refused
        Names the key.
    """
    config = inputs.config
    objective, loss = OBJECTIVE.find(config.objective), LOSS.find(config.loss)
    for partition_id, name in enumerate(models_named(config.model)):
        if why := obstacle(inputs.initial(partition_id).module, objective, loss):
            key, value, wanted = "objective", config.objective, "another one with dp 'example'"
            if why.startswith("BatchNorm"):
                key, value = "model", name
                wanted = "one with GroupNorm, such as 'simple-cnn-gn' or by norm 'group:G', with dp 'example'"
            if why.startswith("loss"):
                key, value = "loss", config.loss
            raise Refused(str(Conflict(key, value, f"{wanted}: {why}").error))


@process_cache(maxsize=4096)
def task_of(inputs: RunInputs, partition_id: int) -> LocalTask:
    """The task of a client, from the run's inputs in this process; see `local_task`."""
    config, dataset = inputs.config, inputs.dataset
    if not dataset.has_examples:
        raise UserError(f"data-path: missing from the node config; the run's dataset is {config.dataset!r}")
    if config.dp == "example":
        check_example_wise(inputs)
    rows, units = rows_of(inputs, partition_id), inputs.protected_units
    prepare = inputs.prepare(rows["train"], partition_id)
    train, test = (
        seen_by(split.columns, config.feature_shift, partition_id) for split in (dataset.train, dataset.test)
    )
    columns = {TRAIN: train, VALIDATION: train, TEST: test, **dict.fromkeys(HALVES, test)}
    augment = dataset.kind.augmentation(config.augment)
    if dataset.problem.windows:
        augment = RandomPatches(dataset.problem.windows, augment)
    examples = {
        split: Examples(
            columns[split], indices, prepare, augment if split == TRAIN else None, device=config.device
        )
        for split, indices in rows.items()
    }
    for split in (VALIDATION, TEST, *(HALVES if config.cross_fits else ())):
        if split not in examples:
            domain = domain_of(config.feature_shift, partition_id)
            examples[split] = prepared_split(inputs, split, prepare, domain)
    if partition_id == config.left_out:
        examples[TEST] = _of_every_split(rows, train, test, prepare, config.device)
    for changed in config.brought("examples"):
        examples |= changed(inputs, partition_id, examples)
    train_examples = examples[TRAIN]
    examples[TRAIN] = replace(train_examples, augment=None)  # a selection may ask for the loss on these
    initial = inputs.initial(partition_id)
    loss = LOSS.find(config.loss)
    training = LocalTraining(
        epochs=config.local_epochs,
        batch_size=config.batch_size,
        optimizer=config.client_optimizer,
        momentum=config.client_momentum,
        weight_decay=config.weight_decay,
        clip_norm=config.clip_norm,
        agc=config.agc,
        replays=config.fast != "off",
    )
    return LocalTask(
        initial.module,
        initial.entries,
        train_examples,
        examples,
        training,
        (config.seed, partition_id),
        OBJECTIVE.find(config.objective),
        dataset.problem,
        loss,
        config.settings_for(loss),
        config.settings_for(CLIENT.find(config.client)),
        partial(share_of_work, config.seed, 0 if config.drop_stragglers else config.stragglers, partition_id),
        tells_classes=not inputs.data_path,
        constant=initial.constant,
        private=example_terms(inputs).mechanism_for(config.dp_seed, partition_id)
        if config.dp == "example" and not inputs.data_path
        else None,
        units=None if units is None else numbered(units[rows[TRAIN]]),
    )


def _of_every_split(
    rows: Mapping[str, NDArray[np.int64]], train: Columns, test: Columns, prepare: Prepare, device: str
) -> Examples:
    """Return all examples, training ones first, of a client that never trains, and is tested on all."""
    kept, tested = of_every_split(rows)
    columns = {name: np.concatenate([train[name][kept], test[name][tested]]) for name in test}
    return Examples(columns, np.arange(len(kept) + len(tested)), prepare, device=device)


def of_every_split(rows: Mapping[str, NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of a client that never trains in the training set and in the test set, in order."""
    return np.sort(np.concatenate([rows[TRAIN], rows[VALIDATION]])), rows[TEST]


def example_terms(inputs: RunInputs) -> ExampleTerms:
    """The parameters of example-level privacy, the same in every process of a run."""
    last = inputs.config.at_round(inputs.config.rounds)
    training = {int(n) for i, n in enumerate(inputs.protected) if i not in inputs.held_out_clients}
    return terms_of(last, frozenset(training))


def rows_of(inputs: RunInputs, partition_id: int) -> dict[str, NDArray[np.int64]]:
    """Return a client's rows by split: ``train``, and splits on which it is evaluated only in part."""
    config, dataset = inputs.config, inputs.dataset
    if inputs.data_path:
        rng, test = np.random.default_rng([config.seed, partition_id]), np.arange(len(dataset.test))
        split, rows = dataset.train, np.arange(len(dataset.train))
        if config.folds:
            whole = Shares.of([rows])
            folds = folds_of_clients(split.columns["y"], split.units, whole, config.folds, config.seed)
            tested = folds == config.fold - 1
            rows, test = rows[~tested], rows[tested]
        validation, train = split.held_out(rng, rows, config.val_fraction, inputs.splits(split.units).evenly)
        return {"train": np.sort(train), VALIDATION: np.sort(validation), **_with_halves(inputs, test)}
    if partition_id >= config.num_clients:
        raise not_allowed("partition-id", partition_id, f"less than num-clients, {config.num_clients}")
    shares = inputs.partitions
    train = shares.train[partition_id]
    if inputs.evaluates_locally:
        tested = _with_halves(inputs, shares.test[partition_id])
        return {"train": train, VALIDATION: shares.val[partition_id], **tested}
    return {"train": train}


def _with_halves(inputs: RunInputs, test: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Return a client's test rows by split, with their halves if the run needs them."""
    halves = HALVES if inputs.config.cross_fits else ()
    return {TEST: test, **{half: half_of(inputs, test, half) for half in halves}}
