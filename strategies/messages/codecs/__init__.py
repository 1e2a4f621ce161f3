"""Codecs of updates, one file each: what travels in place of ``trained - received``."""

from .base import Codec
from .bf16 import Bf16
from .lowrank import LowRank
from .qsgd import Qsgd
from .randk import RandK
from .sign import Sign
from .topk import TopK

CODECS: dict[str, type[Codec]] = {
    "topk": TopK,
    "randk": RandK,
    "qsgd": Qsgd,
    "bf16": Bf16,
    "sign": Sign,
    "lowrank": LowRank,
}
"""Built-in codecs by name. To add one, import it above and enter it here."""

__all__ = ["CODECS", "Codec"]
