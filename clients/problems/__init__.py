"""What is learnt, one file each."""

from pkgutil import resolve_name

from .base import Problem
from .characters import NextCharacter
from .classification import Classification
from .least_squares import LeastSquares
from .metrics import METRICS, Metric, Predicted
from .multi_label import MultiLabel
from .regression import Regression
from .segmentation import Segmentation

_PLACES = {
    "classification": "classification:Classification",
    "multi-label": "multi_label:MultiLabel",
    "segmentation": "segmentation:Segmentation",
    "regression": "regression:Regression",
    "characters": "characters:NextCharacter",
    "least-squares": "least_squares:LeastSquares",
}
"""Built-in problems: name -> ``module:Class`` in this package. To add one, add a line here."""

PROBLEMS: dict[str, type[Problem]] = {
    name: resolve_name(f"{__name__}.{place}") for name, place in _PLACES.items()
}

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
