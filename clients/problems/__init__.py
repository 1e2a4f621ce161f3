"""What is learnt, one file each."""

from .base import Problem
from .characters import NextCharacter
from .classification import Classification
from .least_squares import LeastSquares
from .metrics import METRICS, Metric, Predicted
from .multi_label import MultiLabel
from .regression import Regression
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
