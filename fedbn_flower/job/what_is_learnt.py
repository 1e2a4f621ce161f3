"""The table shown before the first round: what a run learns, from which data, and from which clients."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients.modules.optimizers import torch_defaults
from fedbn_flower.clients.problems.metrics.base import LABELS

from ..config.run_config import RunConfig
from ..core.ground.columns import TEST, TRAIN, VALIDATION
from ..core.notes import ROWS, Note
from ..core.text import listed
from ..data import Dataset
from ..data.events import notes_of
from ..data.images.kind import Images
from ..data.labels import spelt_alike
from ..data.numeric import Table
from ..data.splits.subgroups import attributes_of
from ..data.statistics import columns_of
from .group_sides import of_groups, sides_of
from .inputs import RunInputs
from .tasks import rows_of

MAX_SHOWN = 10
"""The most classes, columns and clients shown by name."""
STANDARDISED = "numbers are standardised by"
OWN_ROWS = f"{STANDARDISED} the mean and deviation of each client's own training rows"


def what_is_learnt(inputs: RunInputs, partition_id: int = 0) -> tuple[Note, ...]:
    """Return the table's rows in order: those derived from the data, then the data's notes.

    At a site with data of its own these are the site's data, with its ``partition_id``.
    """
    dataset = inputs.dataset
    found = (*_computed(inputs, partition_id), *inputs.notes) if dataset.has_examples else _elsewhere(inputs)
    return tuple(sorted(found, key=lambda note: ROWS.index(note.row)))


def _computed(inputs: RunInputs, partition_id: int) -> Iterator[Note]:
    dataset = inputs.dataset
    if columns := dataset.kind.facts.get("targets"):
        guessed = "label-column" if inputs.config.label_column == "auto" else ""
        yield Note("target", f"column{'s' * (len(columns) > 1)} {', '.join(map(repr, columns))}", guessed)
    yield Note("target", _target(dataset))
    yield from notes_of(dataset)
    yield Note("inputs", _inputs(dataset))
    yield from _standardised(inputs, partition_id)
    if (units := inputs.protected_units) is not None:
        count = len(np.unique(units))
        of_one = f"rows with one value of {inputs.config.dp_unit!r}"
        yield Note("examples", f"{of_one} are protected together: {count} values, in training and validation")
    if inputs.data_path:
        rows = rows_of(inputs, partition_id)
        yield Note("examples", _examples(*(len(rows[split]) for split in (TRAIN, VALIDATION, TEST))))
        yield from of_groups(inputs, [rows[split] for split in (TRAIN, VALIDATION, TEST)])
        yield Note("clients", f"this site, {inputs.data_path}")
        return
    shares = inputs.partitions
    yield Note("examples", _examples(*inputs.sizes))
    yield from of_groups(inputs, sides_of(inputs))
    yield from _subgroups(dataset, shares.test_rows)
    yield Note("clients", _clients(inputs))
    if unused := shares.left_out(inputs.evaluates_locally):
        yield Note("left out", unused)
    yield from _of_the_optimizer(inputs.config)


def _subgroups(dataset: Dataset, tested: NDArray[np.int64]) -> Iterator[Note]:
    """Yield the subgroups of each attribute, with their test examples, and whether the model sees it."""
    learnt_from = (
        {name for name, *_ in columns_of(dataset.kind)} if isinstance(dataset.kind, Table) else set()
    )
    for name, words in dataset.test.subgroups.items():
        found, counts = np.unique(words[tested], return_counts=True)
        named = [word or "no value" for word in found]
        column = attributes_of(name)[0].column
        seen = "an input of the model" if column in learnt_from else "no input of the model"
        yield Note("examples", f"subgroups to test by {column!r}, {seen}: {_counted(named, counts)}")


def _elsewhere(inputs: RunInputs) -> Iterator[Note]:
    """The rows known to a server whose sites hold the data."""
    yield Note("target", f"{_predicted(inputs.dataset)}, as the dataset {inputs.config.dataset!r} says")
    yield from notes_of(inputs.dataset)
    yield Note("inputs", _size(inputs.dataset))
    yield Note("clients", "SuperNodes, each with its own data or the same")
    yield from _of_the_optimizer(inputs.config)


def _of_the_optimizer(config: RunConfig) -> Iterator[Note]:
    """Yield optimiser keys that are 0, but have another default in torch."""
    text = config.client_optimizer
    values = {"client-momentum": config.client_momentum, "weight-decay": config.weight_decay}
    for key, default in torch_defaults(text).items():
        if default and values.get(key) == 0:
            yield Note("training", f"client-optimizer {text!r} with {key} 0; torch's default is {default:g}")


def _target(dataset: Dataset) -> str:
    y = dataset.train.columns["y"]
    if dataset.has_classes:
        counts = np.bincount(y, minlength=dataset.spec.outputs)
        return f"{_predicted(dataset)}: {_counted(dataset.output_names, counts)}"
    if dataset.spec.predicts != "numbers":
        return _predicted(dataset)
    if _has_labels(dataset):
        return f"{_predicted(dataset)}: {_counted(dataset.output_names, y.sum(axis=0, dtype=np.int64))}"
    spreads = (f"mean {of.mean():.3g}, standard deviation {of.std():.3g}" for of in y.T.astype(float))
    ranges = [f"{of.min():.6g} to {of.max():.6g} ({told})" for of, told in zip(y.T, spreads, strict=True)]
    if len(ranges) == 1 and not dataset.class_names:
        return f"a number, {ranges[0]}"
    named = [f"{name} {span}" for name, span in zip(dataset.output_names, ranges, strict=True)]
    return f"{_predicted(dataset)}: {listed(named, MAX_SHOWN)}"


def _predicted(dataset: Dataset) -> str:
    """What a model predicts, with the number of classes, labels or values."""
    outputs = dataset.spec.outputs
    match dataset.spec.predicts:
        case "classes":
            return f"{outputs} classes"
        case "masks":
            return f"masks of {outputs} classes"
        case "numbers" if _has_labels(dataset):
            return f"{outputs} label{'s' * (outputs > 1)}"
        case "numbers":
            return "a number" if outputs == 1 else f"{outputs} numbers"
        case _:
            return f"the next of {outputs} characters"


def _has_labels(dataset: Dataset) -> bool:
    """Return whether the targets are labels, any number per example (multi-label)."""
    return dataset.problem.predicts == LABELS


def _counted(names: Sequence[str], counts: NDArray[np.int64]) -> str:
    """Return the classes or labels with the number of training examples that have each."""
    return listed([f"{name} ({count})" for name, count in zip(names, counts, strict=True)], MAX_SHOWN)


def _inputs(dataset: Dataset) -> str:
    if isinstance(dataset.kind, Table):
        found = [
            f"{name} ({listed(values, MAX_SHOWN) if values else 'number'})"
            for name, values, _ in columns_of(dataset.kind)
        ]
        return f"{len(found)} column{'s' * (len(found) > 1)}: {listed(found, MAX_SHOWN)}"
    return _size(dataset)


def _standardised(inputs: RunInputs, partition_id: int) -> Iterator[Note]:
    """Say by which rows a table's numbers are standardised, and so filled where they are missing."""
    kind, config = inputs.dataset.kind, inputs.config
    has_numbers = isinstance(kind, Table) and any(not words for _, words, _ in columns_of(kind))
    said = OWN_ROWS
    if inputs.prepares_publicly:
        scale = f"{STANDARDISED} the public dp-scale {config.dp_scale!r}"
        said = scale if config.dp_scale else "numbers are not standardised"
    elif config.normalize == "median":
        said = f"{STANDARDISED} the medians of the clients' means and deviations"
    elif config.normalize or config.reference == "pooled":
        said = f"{STANDARDISED} the mean and deviation of all training rows"
    if has_numbers and not inputs.initial(partition_id).spec.integers:
        yield Note("inputs", said)


def _size(dataset: Dataset) -> str:
    shape = dataset.spec.shape
    sizes = " x ".join(map(str, shape))
    if isinstance(dataset.kind, Images):
        depth = ", depth" if len(shape) > 3 else ""
        return f"images of {sizes} (channels{depth}, height, width)"
    if dataset.spec.predicts == "characters":
        return f"{sizes} characters"
    return f"{sizes} numbers"


def _examples(train: int, validation: int, test: int) -> str:
    held_out = f"{validation} for validation, " if validation else ""
    return f"{train} to train on, {held_out}{test} to test on"


def _clients(inputs: RunInputs) -> str:
    """The number of clients, their partition, and their numbers of training examples."""
    config, sizes = inputs.config, inputs.partitions.train.sizes
    made = f"{len(sizes)} by partition {config.partition!r}"
    if len(sizes) <= MAX_SHOWN:
        names: Sequence[str] = inputs.client_names or [str(i) for i in range(len(sizes))]
        same = {name for several in spelt_alike(names) for name in several}
        names = [repr(name) if name in same else name for name in names]
        return f"{made}: {_counted(names, sizes)}"
    return f"{made}, of {sizes.min()} to {sizes.max()} training examples"
