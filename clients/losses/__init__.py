"""Training losses, one file each."""

from .base import Loss
from .calc import Calc
from .class_balanced import ClassBalanced
from .dice import Dice, DiceCe
from .focal import Focal
from .label_smoothing import LabelSmoothing
from .logit_adjusted import LogitAdjusted
from .weighted_bce import WeightedBce

LOSSES: dict[str, type[Loss]] = {
    "auto": Loss,
    "class-balanced": ClassBalanced,
    "focal": Focal,
    "label-smoothing": LabelSmoothing,
    "logit-adjusted": LogitAdjusted,
    "calc": Calc,
    "dice": Dice,
    "dice-ce": DiceCe,
    "weighted-bce": WeightedBce,
}
"""Built-in losses by name. To add one, import it above and enter it here."""

__all__ = ["LOSSES", "Loss"]
