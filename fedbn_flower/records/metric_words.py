"""Metrics as papers call them, for headings, axes and legends, and with how many decimals."""

import math
from collections.abc import Iterable

from .metrics import percent

WORDS = {
    "sensitivity-at": "sensitivity at specificity",
    "balanced-accuracy": "balanced accuracy",
    "average-precision": "average precision",
    "surface-dice": "surface Dice",
    "case-dice": "Dice by case",
    "specificity": "specificity",
    "sensitivity": "sensitivity",
    "auroc": "AUROC",
    "brier": "Brier score",
    "dice": "Dice",
    "hd95": "HD95",
    "rmse": "RMSE",
    "ece": "ECE",
    "iou": "IoU",
    "mae": "MAE",
    "f1": "F1",
    "r2": "R²",
}
"""By their names; longer ones first, since some begin with others."""
MOST_DECIMALS = 6


def spelt(name: str) -> str:
    """Return a metric as papers call it: ``auroc-tube`` is "AUROC, tube"; others as they are.

    What is after a colon stands in brackets, but for a number: ``sensitivity-at:0.9`` is "sensitivity at
    specificity 0.9".
    """
    for key, words in WORDS.items():
        rest = name.removeprefix(key)
        if rest == name or rest[:1] not in ("", ":", "-"):
            continue
        argument, dash, of_class = rest.partition("-")
        if argument := argument.removeprefix(":"):
            argument = f" {argument}" if argument.replace(".", "").isdigit() else f" ({argument})"
        return f"{words}{argument}{f', {of_class}' if dash else ''}"
    return name


def heading(name: str) -> str:
    """Return a metric `spelt` at the beginning of a heading: "Loss", "IoU"."""
    words = spelt(name)
    return words[:1].upper() + words[1:]


def decimals(name: str, values: Iterable[float | None]) -> int:
    """Return how many decimals all values of a metric have: four digits of the largest, three below 1.

    Those in percent have one.
    """
    if percent(name) == 100:
        return 1
    largest = max((abs(v) for v in values if v is not None and math.isfinite(v)), default=0.0)
    if not largest:
        return 3
    place = math.floor(math.log10(largest))
    return min(MOST_DECIMALS, max(0, (3 if place >= 0 else 2) - place))
