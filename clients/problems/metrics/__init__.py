"""Metrics that are exact in a federation, by name."""

from .base import Metric, Predicted
from .confusion import F1, BalancedAccuracy, Dice, IoU, Sensitivity, Specificity
from .numbers import R2, Rmse
from .scores import Auroc, AveragePrecision, Ece, SensitivityAt

METRICS: dict[str, type[Metric]] = {
    "f1": F1,
    "dice": Dice,
    "iou": IoU,
    "sensitivity": Sensitivity,
    "specificity": Specificity,
    "balanced-accuracy": BalancedAccuracy,
    "auroc": Auroc,
    "average-precision": AveragePrecision,
    "sensitivity-at": SensitivityAt,
    "ece": Ece,
    "r2": R2,
    "rmse": Rmse,
}
"""Built-in metrics by name. To add one, import it above and enter it here."""

__all__ = ["METRICS", "Metric", "Predicted"]
