"""Warn of numbers to predict that are so large that training diverges."""

from collections.abc import Iterator
from math import floor, log10

import numpy as np

from fedbn_flower.clients import Regression

from ...data.images.kind import Images
from ...data.sources import ARRAYS
from ..inputs import RunInputs

MOST = 1.0
"""The learning rate times the root mean square of the targets, from which on training mostly diverges.

Found with the models mlp-bn and 2nn, rates of 0.0001 to 0.05 and targets of 1 to 10,000: below 0.3 all runs
were finite, beyond 5 none. The gradient of the squared error grows as the targets do, and so do the weights
of the layer before the last.
"""
SAFE = 0.2


def of_target_scale(inputs: RunInputs) -> Iterator[str]:
    """Yield a warning if the squared error of large targets hardly lets gradient descent stay finite.

    A model of one layer stays so, and so do optimisers that divide by the gradient's size, or clipped ones.
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
    """Return the key that gives the targets, and what they are called."""
    dataset = inputs.dataset
    names = dataset.class_names or dataset.kind.facts.get("targets", ())
    if names:
        return "label-column", repr(names[column])
    if inputs.config.dataset.startswith(ARRAYS):
        return "data", "y"
    return ("label-column", "the label") if isinstance(dataset.kind, Images) else ("dataset", "the target")


def _rounded_down(value: float) -> float:
    """Return a positive number with its first digit only."""
    unit = 10.0 ** floor(log10(value))
    return float(f"{floor(value / unit) * unit:.0e}")
