"""Codecs of updates, one file each: what travels in place of ``trained - received``."""

from pkgutil import resolve_name

from .base import Codec

_PLACES = {
    "topk": "topk:TopK",
    "randk": "randk:RandK",
    "qsgd": "qsgd:Qsgd",
    "bf16": "bf16:Bf16",
    "sign": "sign:Sign",
    "lowrank": "lowrank:LowRank",
}
"""Built-in codecs: name -> ``module:Class`` in this package. To add one, add a line here."""

CODECS: dict[str, type[Codec]] = {
    name: resolve_name(f"{__name__}.{place}") for name, place in _PLACES.items()
}

__all__ = ["CODECS", "Codec"]
