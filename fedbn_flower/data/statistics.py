"""Statistics of a divided dataset before anything is trained: classes and features by client."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .dataset import Dataset, Rows
from .images.kind import Images
from .images.moments import top_of
from .images.shift_spec import seen_by
from .masks import pixel_counts
from .numeric import Table

Counts = NDArray[np.int64]
Numbers = NDArray[np.float64]
BINS = 16
MAX_FEATURES = 24
"""Features that are described by themselves; of wider inputs, such as signals, all values together are."""
SAMPLED_VALUES = 2**18  # of a client's images; bounds the memory that many clients take


def class_counts(dataset: Dataset, shares: Sequence[Rows]) -> Counts:
    """Return the number of training examples of each class of each client, (clients, classes)."""
    labels = dataset.train.columns["y"]
    return np.array([np.bincount(labels[rows], minlength=dataset.spec.outputs) for rows in shares])


def class_pixels(dataset: Dataset, shares: Sequence[Rows]) -> Counts:
    """Return the number of pixels of each class in each client's masks, (clients, classes); void left out."""
    masks, classes = dataset.train.columns["y"], dataset.spec.outputs
    return np.array([pixel_counts(masks, rows, classes) for rows in shares])


@dataclass(frozen=True, eq=False)
class Feature:
    """A feature of the training examples, by client.

    Parameters
    ----------
    name : str
        Of a table's column, of an image's channel, or by number.
    edges : NDArray
        (bins + 1,): the bins' edges, the same for all clients; of a category the numbers of its values.
    counts : NDArray
        (clients, bins): how many values are in each bin.
    mean, std : NDArray
        (clients,): of the values that are there, NaN without any. Of a category NaN.
    missing : NDArray
        (clients,): how many values are missing.
    values : tuple[str, ...]
        The values of a category.
    most : float, optional
        The greatest possible value, if the last bin reaches beyond it.
    """

    name: str
    edges: Numbers
    counts: Counts
    mean: Numbers
    std: Numbers
    missing: Counts
    values: tuple[str, ...] = ()
    most: float | None = None

    @property
    def range(self) -> str:
        """The extremes of all values; of one value, whose bins reach 1/2 to each side, that value."""
        first, last = self.edges[0], self.edges[-1] if self.most is None else self.most
        if last - first <= 1 and not self.counts[:, 0].any():
            return f"{(first + last) / 2:.4g}"
        return f"{first:.4g} to {last:.4g}"

    @classmethod
    def of_numbers(cls, name: str, by_client: Sequence[NDArray], edges: Numbers | None = None) -> "Feature":
        """Describe numbers of each client, NaN where one is missing, in bins between the extremes of all."""
        if edges is None:
            extremes = [
                f(kept) for values in by_client if len(kept := _present(values)) for f in (np.min, np.max)
            ]
            edges = np.histogram_bin_edges(extremes or [0.0], BINS)
        counts, means, stds, missing = [], [], [], []
        for values in by_client:
            kept = _present(values).astype(np.float64)
            counts.append(np.histogram(kept, edges)[0])
            means.append(kept.mean() if len(kept) else np.nan)
            stds.append(kept.std() if len(kept) else np.nan)
            missing.append(len(values) - len(kept))
        return cls(name, edges, np.array(counts), np.array(means), np.array(stds), np.array(missing))

    @classmethod
    def of_category(cls, name: str, values: tuple[str, ...], by_client: Sequence[NDArray]) -> "Feature":
        """Describe a one-hot encoded category, (n, values) of each client; zeros are a missing value."""
        counts = np.array([x.sum(0) for x in by_client], np.int64)
        unknown = np.full(len(by_client), np.nan)
        missing = np.array([len(x) for x in by_client]) - counts.sum(1)
        return cls(name, np.arange(len(values) + 1.0), counts, unknown, unknown, missing, values)


def _present(values: NDArray) -> NDArray:
    found: NDArray = values[~np.isnan(values)]
    return found


def spread(rows: Rows, count: int) -> Rows:
    """Return at most ``count`` rows from all over these: rows of a class often follow each other."""
    return rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64)]


def sampled_images(dataset: Dataset) -> int:
    """Return how many images of a client the features are of."""
    return max(1, SAMPLED_VALUES // dataset.spec.size)


def features(
    dataset: Dataset, shares: Sequence[Rows], feature_shift: str, by_range: bool = True
) -> list[Feature]:
    """Describe the inputs of each client's training examples, and targets that are numbers.

    Without ``by_range`` no bin depends on the data: numbers without bounds are all in one bin.

    Images have a feature for each channel, its intensities in 0..255, of at most `sampled_images` a client.
    Inputs of more than `MAX_FEATURES` numbers have one feature. Texts have none.
    """
    if dataset.spec.predicts == "characters":
        return []
    edges = None if by_range else np.array([-np.inf, np.inf])
    found = list(_of_inputs(dataset, shares, feature_shift, edges))
    if dataset.spec.predicts == "numbers":
        targets = [dataset.train.columns["y"][rows] for rows in shares]
        found += [
            Feature.of_numbers(
                f"target {name}" if dataset.spec.outputs > 1 else "target", [y[:, i] for y in targets], edges
            )
            for i, name in enumerate(dataset.output_names[:MAX_FEATURES])
        ]
    return found


def inputs_of_client(dataset: Dataset, rows: Rows, feature_shift: str, client: int) -> NDArray:
    """Return the inputs of some of a client's rows, as it sees them and before they are prepared."""
    inputs: NDArray = seen_by(dataset.train.columns, feature_shift, client)["x"][rows]
    return inputs


def _of_inputs(
    dataset: Dataset, shares: Sequence[Rows], feature_shift: str, edges: Numbers | None
) -> Iterator[Feature]:
    is_image = isinstance(dataset.kind, Images)
    x = [
        inputs_of_client(
            dataset, spread(rows, sampled_images(dataset)) if is_image else rows, feature_shift, client
        )
        for client, rows in enumerate(shares)
    ]
    if is_image:
        levels = np.linspace(0, 256, BINS + 1)
        for channel in range(x[0].shape[1]):
            name = f"intensity, channel {channel}" if x[0].shape[1] > 1 else "intensity"
            levels_of_8_bits = [images[:, channel].ravel() / (top_of(images) // 255) for images in x]
            yield replace(Feature.of_numbers(name, levels_of_8_bits, levels), most=255.0)
    elif isinstance(dataset.kind, Table):
        for name, values, columns in columns_of(dataset.kind):
            parts = [rows[:, columns] for rows in x]
            if values:
                yield Feature.of_category(name, values, parts)
            else:
                yield Feature.of_numbers(name, [part[:, 0] for part in parts], edges)
    else:
        flat = [rows.reshape(len(rows), -1) for rows in x]
        width = flat[0].shape[1]
        if width > MAX_FEATURES:
            yield Feature.of_numbers(f"all {width} values", [rows.ravel() for rows in flat], edges)
            return
        for i in range(width):
            yield Feature.of_numbers(f"x{i}", [rows[:, i] for rows in flat], edges)


def columns_of(kind: Table) -> Iterator[tuple[str, tuple[str, ...], slice]]:
    """Yield name, values and encoded columns of each column of a table; numbers have no values."""
    start = 0
    for column in kind.facts["columns"]:
        values = tuple(column["values"])
        stop = start + (len(values) or 1)
        yield column["name"], values, slice(start, stop)
        start = stop
