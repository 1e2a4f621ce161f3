"""Metrics that are exact in a federation, by name."""

from pkgutil import resolve_name

from .base import Metric, Predicted

_PLACES = {
    "f1": "confusion:F1",
    "dice": "confusion:Dice",
    "iou": "confusion:IoU",
    "sensitivity": "confusion:Sensitivity",
    "specificity": "confusion:Specificity",
    "balanced-accuracy": "confusion:BalancedAccuracy",
    "auroc": "scores:Auroc",
    "average-precision": "scores:AveragePrecision",
    "sensitivity-at": "scores:SensitivityAt",
    "ece": "calibration:Ece",
    "r2": "numbers:R2",
    "rmse": "numbers:Rmse",
}
"""Built-in metrics: name -> ``module:Class`` in this package. To add one, add a line here."""

METRICS: dict[str, type[Metric]] = {
    name: resolve_name(f"{__name__}.{place}") for name, place in _PLACES.items()
}

__all__ = ["METRICS", "Metric", "Predicted"]
