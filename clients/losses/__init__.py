"""Losses: what a wrong prediction costs in training, one file each."""

from .base import Loss
from .calc import Calc
from .class_balanced import ClassBalanced
from .focal import Focal
from .label_smoothing import LabelSmoothing
from .logit_adjusted import LogitAdjusted

LOSSES: dict[str, type[Loss]] = {
    "auto": Loss,
    "class-balanced": ClassBalanced,
    "focal": Focal,
    "label-smoothing": LabelSmoothing,
    "logit-adjusted": LogitAdjusted,
    "calc": Calc,
}

__all__ = ["LOSSES", "Loss"]
