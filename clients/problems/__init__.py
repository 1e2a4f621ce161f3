"""Learning problems: losses, outputs and metrics."""

from .base import Problem
from .classification import Classification, MultiLabel, NextCharacter
from .metrics import METRICS, Metric, Predicted
from .regression import LeastSquares, Regression
from .segmentation import Segmentation

PROBLEMS: dict[str, type[Problem]] = {
    "classification": Classification,
    "multi-label": MultiLabel,
    "segmentation": Segmentation,
    "regression": Regression,
    "characters": NextCharacter,
    "least-squares": LeastSquares,
}
"""Built-in problems by name. To add one, import it above and enter it here."""

__all__ = [
    "METRICS",
    "PROBLEMS",
    "Classification",
    "LeastSquares",
    "Metric",
    "MultiLabel",
    "NextCharacter",
    "Predicted",
    "Problem",
    "Regression",
    "Segmentation",
]
