"""Training losses, one file each."""

from pkgutil import resolve_name

from .base import Loss

_PLACES = {
    "auto": "base:Loss",
    "class-balanced": "class_balanced:ClassBalanced",
    "focal": "focal:Focal",
    "label-smoothing": "label_smoothing:LabelSmoothing",
    "logit-adjusted": "logit_adjusted:LogitAdjusted",
    "calc": "calc:Calc",
    "dice": "dice:Dice",
    "dice-ce": "dice:DiceCe",
    "weighted-bce": "weighted_bce:WeightedBce",
}
"""Built-in losses: name -> ``module:Class`` in this package. To add one, add a line here."""

LOSSES: dict[str, type[Loss]] = {name: resolve_name(f"{__name__}.{place}") for name, place in _PLACES.items()}

__all__ = ["LOSSES", "Loss"]
